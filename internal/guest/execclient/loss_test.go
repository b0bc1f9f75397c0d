package execclient

import (
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

func TestALossIsWrittenToStderr(t *testing.T) {
	var out string
	s := Session{Stderr: func(b []byte) error { out += string(b); return nil }}
	for _, n := range []int64{0, -1, 4096} {
		alive := &process.ProcessEvent_KeepAlive{OutputDropped: n}
		ev := &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: alive}}
		if err := s.noteLoss(ev); err != nil {
			t.Fatal(err)
		}
	}
	if out != "forkd: 4096 bytes of output are missing here: another reader was faster\n" {
		t.Errorf("got %q", out)
	}
}
