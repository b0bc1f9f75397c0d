package ctxio

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAReadEndsWithItsContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := Reader(ctx, strings.NewReader("ab"))
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	cancel(why)
	if b, err := io.ReadAll(r); len(b) != 0 || !errors.Is(err, why) {
		t.Errorf("%q, %v", b, err)
	}
}
