package storeerr

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
)

func TestFullDisks(t *testing.T) {
	for _, c := range []struct {
		err  error
		full bool
	}{
		{nil, false},
		{io.ErrUnexpectedEOF, false},
		{&fs.PathError{Op: "write", Path: "a", Err: syscall.ENOSPC}, true},
		{fmt.Errorf("write: %w", syscall.EDQUOT), true},
		{fmt.Errorf("reserve: %w", ErrNoSpace), true},
	} {
		got := NoSpace(c.err)
		if IsNoSpace(c.err) != c.full || errors.Is(got, ErrNoSpace) != c.full || !errors.Is(got, c.err) {
			t.Errorf("%v: full %v, and %v", c.err, IsNoSpace(c.err), got)
		}
	}
	if again := NoSpace(ErrNoSpace); again != ErrNoSpace {
		t.Errorf("an error of a full disk was wrapped again: %v", again)
	}
}
