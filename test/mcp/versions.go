package mcp

// pythonVersions are the versions of the Python client, oldest first. The older one is the last of
// its generation, and has the protocol's version 2025-11-25 only.
func pythonVersions() []string { return []string{"1.30.0", "2.3.0"} }

// Versions of the clients from npm.
const (
	nodeSDK   = "1.32.2"
	inspector = "2.12.0"
)
