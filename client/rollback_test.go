package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestRollback(t *testing.T) {
	_, c, id := sandbox(t, nil)
	if _, err := c.Branch(t.Context(), id, api.BranchRequest{Tag: "mid"}); err != nil {
		t.Fatal(err)
	}
	info, err := c.Rollback(t.Context(), id, "mid")
	if err != nil || info.ID != id || info.RolledBackTo != "mid" || info.SnapshotTag != "py" {
		t.Errorf("got %+v, %v", info, err)
	}
	if _, err := c.Rollback(t.Context(), id, "nothing"); !client.IsNotFound(err) || !strings.Contains(err.Error(), "mid, py") {
		t.Errorf("to a snapshot that is not there: %v", err)
	}
}

// A program that runs during a rollback ends, and the caller learns the reason.
func TestARollbackEndsStreams(t *testing.T) {
	_, c, id := sandbox(t, nil)
	if _, err := c.Branch(t.Context(), id, api.BranchRequest{Tag: "mid"}); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		_, err := c.ExecStream(t.Context(), id, client.ExecOptions{
			Args: []string{"sleep", "60"}, Stdout: writerFunc(func(b []byte) (int, error) {
				close(begun)
				return len(b), nil
			}),
		})
		got <- err
	}()
	<-begun
	if _, err := c.Rollback(t.Context(), id, "mid"); err != nil {
		t.Fatal(err)
	}
	var e *client.Error
	if err := <-got; !errors.As(err, &e) || e.Code != api.CodeGuestGone || !strings.Contains(err.Error(), "rolled back to snapshot mid") {
		t.Errorf("the program's caller got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
