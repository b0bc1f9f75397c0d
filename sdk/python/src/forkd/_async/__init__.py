"""The client. The synchronous package is generated from the asynchronous one."""
