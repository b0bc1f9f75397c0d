package forktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

const token = "0123456789abcdef0123456789abcdef"

func wantCode(t *testing.T, err error, want forkwire.Code) {
	t.Helper()
	var e *forkwire.Error
	if want == "" && err == nil {
		return
	}
	if !errors.As(err, &e) || e.Code != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestWaitReturnsEachChildOnce(t *testing.T) {
	f := NewFamily(t.TempDir())
	for i := range 3 {
		f.AddChild(fmt.Sprint("c", i+1), i+1, token)
	}
	if err := f.Ended("c2", forkwire.Exited, 7, "", []byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := f.Ended("c2", forkwire.Killed, -1, "", nil); err != nil { // a child that exited is then killed
		t.Fatal(err)
	}
	end, err := f.Wait(t.Context(), nil)
	if err != nil || end.ID != "c2" || end.Code != 7 || string(end.Result) != "two" || end.Status != forkwire.Exited {
		t.Fatalf("got %+v, %v", end, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.Wait(short, []string{"c2"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what one waiter has in hand was given to another: %v", err)
	}
	end.Back()
	again, err := f.Wait(t.Context(), []string{"c2"})
	if err != nil || string(again.Result) != "two" {
		t.Fatalf("given back: %+v, %v", again, err)
	}
	again.Collected()
	_, err = f.Wait(t.Context(), []string{"c2"})
	wantCode(t, err, forkwire.NoChildren)

	got := make(chan End)
	go func() {
		end, _ := f.Wait(context.Background(), nil)
		got <- end
	}()
	if err := f.Ended("c1", forkwire.Died, -1, "signal: killed", nil); err != nil {
		t.Fatal(err)
	}
	if end := <-got; end.ID != "c1" || end.Status != forkwire.Died || end.Reason != "signal: killed" {
		t.Errorf("got %+v", end)
	} else {
		end.Collected()
	}
	f.DropChild("c3")
	_, err = f.Wait(t.Context(), nil)
	wantCode(t, err, forkwire.NoChildren)
	if left, _ := os.ReadDir(f.dir); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestEndsOutliveTheDaemon(t *testing.T) {
	dir := t.TempDir()
	f := NewFamily(dir)
	f.AddChild("c1", 1, token)
	f.AddChild("c2", 2, token)
	if err := f.Ended("c1", forkwire.Exited, 0, "", []byte("the result")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"ended-x": "rubbish", "ended-y": "{\"bytes\":99}\n", "ended-z.tmp": "", "sandbox.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := NewFamily(dir)
	if err := g.Load(); err == nil || !strings.Contains(err.Error(), "ended-x") || !strings.Contains(err.Error(), "ended-y") {
		t.Errorf("damage is told as %v", err)
	}
	if !g.AddChild("c1", 1, token) || g.AddChild("c2", 2, token) {
		t.Error("which of the children had ended is lost")
	}
	end, err := g.Wait(t.Context(), nil)
	if err != nil || end.ID != "c1" || string(end.Result) != "the result" {
		t.Errorf("got %+v, %v", end, err)
	}
	// The call itself is forgotten, but its children are known.
	c, first, err := g.Begin(token, true)
	if err != nil || first || len(c.Answer().Children) != 2 {
		t.Errorf("asked again: %+v, %v, %v", c, first, err)
	}
	_, _, err = g.Begin(strings.Repeat("f", 32), true)
	wantCode(t, err, forkwire.Lost)
}

func TestAResultWhoseFileIsGone(t *testing.T) {
	f := NewFamily(t.TempDir())
	f.AddChild("c1", 1, token)
	if err := f.Ended("c1", forkwire.Exited, 0, "", []byte("r")); err != nil {
		t.Fatal(err)
	}
	os.Remove(f.path("c1"))
	_, err := f.Wait(t.Context(), nil)
	wantCode(t, err, forkwire.Lost)
	_, err = f.Wait(t.Context(), nil)
	wantCode(t, err, forkwire.NoChildren)
}

func TestWhatWaitsIsBounded(t *testing.T) {
	f := NewFamily(t.TempDir())
	large := make([]byte, forkwire.MaxResult)
	for i := range maxUncollected {
		id := fmt.Sprint("c", i)
		f.AddChild(id, i+1, token)
		err := f.Ended(id, forkwire.Exited, 0, "", large)
		if i >= maxHeld/len(large) {
			wantCode(t, err, forkwire.Limit)
			err = f.Ended(id, forkwire.Exited, 0, "", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, f.Full(), forkwire.Limit)
	end, err := f.Wait(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	end.Collected()
	wantCode(t, f.Full(), "")
	f.Drop(token)
	if f.held != 0 || len(f.children) != 0 {
		t.Errorf("%d bytes are held for %d children after all were dropped", f.held, len(f.children))
	}
}

func TestACallIsMadeOnce(t *testing.T) {
	f := NewFamily(t.TempDir())
	c, first, err := f.Begin(token, false)
	if err != nil || !first {
		t.Fatal(first, err)
	}
	same, first, err := f.Begin(token, true)
	if err != nil || first || same != c {
		t.Errorf("asked again while it is under way: %v, %v", first, err)
	}
	f.Finish(token, forkwire.Answer{Children: []forkwire.Child{{Index: 1, ID: "c1"}}})
	<-c.Done()
	same, _, err = f.Begin(token, true)
	if err != nil || len(same.Answer().Children) != 1 {
		t.Errorf("asked again afterwards: %+v, %v", same, err)
	}
}

func TestCallsAreBounded(t *testing.T) {
	f := NewFamily(t.TempDir())
	for i := range maxCalls {
		if _, _, err := f.Begin(fmt.Sprint(i), false); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := f.Begin("one more", false)
	wantCode(t, err, forkwire.Busy)
	for i := range 100 {
		f.Finish(fmt.Sprint(i), forkwire.Answer{})
		if _, _, err := f.Begin(fmt.Sprint(i+maxCalls), false); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.calls) > maxCalls+keptCalls {
		t.Errorf("%d calls are remembered", len(f.calls))
	}
}
