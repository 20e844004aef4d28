"""What can be known of compiled device code without a GPU; ci/device_code.py asks for all of it."""
