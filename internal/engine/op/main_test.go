package op_test

import (
	"testing"

	"github.com/forkd/forkd/internal/engine/enginefake"
)

// TestMain lets the test binary play VMMs, and daemons that are killed at a step.
func TestMain(m *testing.M) {
	enginefake.Main(m, map[string]enginefake.Doom{
		"move":       doomedToMove,
		"pause cold": doomedToPauseCold,
		"pause":      doomedToPause,
		"promote":    doomedToPromote,
		"roll back":  doomedToRollBack,
	})
}
