package guesttoken_test

import (
	"testing"

	"github.com/forkd/forkd/internal/engine/enginefake"
)

// TestMain lets the test binary play VMMs.
func TestMain(m *testing.M) { enginefake.Main(m, nil) }
