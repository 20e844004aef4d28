"""What of a text may change, and the only function that edits one."""
