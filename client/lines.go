package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// lines calls each with every line of an answer, until the answer ends, each returns an error, or
// ctx ends. line is valid only during the call.
func (c *connection) lines(ctx context.Context, path string, each func(line []byte) error) error {
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return brokenOff(c.url, http.MethodGet, err)
	default:
		return fmt.Errorf("read %s: %w", path, err)
	}
}
