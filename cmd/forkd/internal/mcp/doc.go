// Package mcp serves forkd to language models by the Model Context Protocol, versions 2026-07-28 and
// 2025-11-25. It is a client of the daemon with the user's own key, and has no more rights than the
// key. It owns the sandboxes of its sessions: package lease ends them with the session. `forkd mcp`
// is its only caller. The trap: on standard output only protocol may appear, so the package logs to
// the given logger and prints nothing.
package mcp
