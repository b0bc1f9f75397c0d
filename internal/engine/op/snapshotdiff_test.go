package op

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestAGuestMayNoticeTheDeadlineFirst(t *testing.T) {
	noticed := connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := new(probe).explain(ctx, noticed); !errors.Is(err, sandbox.ErrTimeout) {
		t.Errorf("just before the deadline: %v", err)
	}
	// If the guest reports it long before the deadline, explain does not wait.
	ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := new(probe).explain(ctx, noticed); !errors.Is(err, sandbox.ErrGuestGone) {
		t.Errorf("long before the deadline: %v", err)
	}
	if err := new(probe).explain(t.Context(), noticed); !errors.Is(err, sandbox.ErrGuestGone) {
		t.Errorf("without a deadline: %v", err)
	}
}
