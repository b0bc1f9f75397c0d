// Package mcp runs the official MCP clients, unmodified, against `forkd mcp` and a daemon with real
// VMs: the Inspector's command line, and the Python and TypeScript packages. It owns the programs
// (testdata) and the pins of the versions. scripts/mcp-clients.sh fetches the clients once from PyPI
// and npm into .cache/mcp. Without them the tests skip.
package mcp
