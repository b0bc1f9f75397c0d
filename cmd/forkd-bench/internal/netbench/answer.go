package netbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// most is the maximum number of bytes in one request.
const most = 1 << 34

// Answer answers the guest's requests over a connection. It answers "send N" with N bytes, and
// "take N" with one byte after it has read N bytes.
func Answer(c io.ReadWriter) error {
	in := bufio.NewReaderSize(c, 256<<10)
	zeros := make([]byte, 256<<10)
	for {
		var what string
		var n int64
		_, err := fmt.Fscanf(in, "%s %d\n", &what, &n)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil || n < 0 || n > most:
			return fmt.Errorf("read request (%d bytes): %w", n, err)
		}
		switch what {
		case "send":
			for ; n > 0 && err == nil; n -= int64(len(zeros)) {
				_, err = c.Write(zeros[:min(n, int64(len(zeros)))])
			}
		case "take":
			if _, err = io.CopyN(io.Discard, in, n); err == nil {
				_, err = c.Write([]byte{'.'})
			}
		default:
			err = fmt.Errorf("request %q", what)
		}
		if err != nil {
			return err
		}
	}
}

// Serve answers requests at a port of this host's loopback address, until ctx ends.
func Serve(ctx context.Context, port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wait.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			_ = Answer(c) // the guest sees the end of the connection
		})
	}
}
