package engine

import (
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/engine/enginetest"
)

func TestConformsOverFakeVMs(t *testing.T) {
	h := newHost(t)
	h.makeUpper()
	h.conforms("disky")
}

// conforms runs the suite that every fake of the engine also passes.
func (h *host) conforms(image string) {
	e := h.open()
	enginetest.Run(h.t, enginetest.Subject{Engine: e, Image: image, End: func(id string) {
		info, err := e.Get(id)
		if err == nil {
			err = syscall.Kill(info.PID, syscall.SIGKILL)
		}
		if err != nil {
			h.t.Error(err)
		}
	}})
}
