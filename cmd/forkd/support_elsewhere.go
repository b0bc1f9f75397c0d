//go:build !linux

package main

import (
	"context"

	"github.com/forkd/forkd/cmd/forkd/internal/support"
)

// hostParts returns no parts, because no daemon runs on this platform.
func hostParts(*supportSources) []support.Part { return nil }

func hostVersions(context.Context) map[string]string { return map[string]string{} }
