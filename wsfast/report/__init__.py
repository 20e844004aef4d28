"""Tables, pictures and HTML of a result. Nothing is computed here; matplotlib is imported late."""
