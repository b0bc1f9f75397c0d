package engine_test

import (
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/enginetest"
)

func TestConformsOverFakeVMs(t *testing.T) {
	h := enginefake.NewHost(t)
	h.MakeUpper()
	conforms(h, "disky")
}

// conforms runs the suite that every fake of the engine also passes.
func conforms(h *enginefake.Host, image string) {
	e := h.Open()
	enginetest.Run(h.T, enginetest.Subject{Engine: e, Image: image, End: func(id string) {
		info, err := e.Get(id)
		if err == nil {
			err = syscall.Kill(info.PID, syscall.SIGKILL)
		}
		if err != nil {
			h.T.Error(err)
		}
	}})
}
