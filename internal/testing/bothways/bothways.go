// Package bothways tests that a proxy passes on a conversation inside one HTTP request: the server answers each part
// of the request before the next part is sent. A proxy that reads the whole request first never answers.
package bothways

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// Echo is a server that sends each part back as it arrives.
var Echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // HTTP/2 always can, but returns an error
	w.WriteHeader(http.StatusOK)
	_ = rc.Flush()
	for buf := make([]byte, 1024); ; {
		n, err := r.Body.Read(buf)
		_, _ = w.Write(buf[:n])
		_ = rc.Flush()
		if err != nil {
			return
		}
	}
})

// patience is the time limit of a conversation.
const patience = 10 * time.Second

// Talk sends three parts to an Echo server behind a proxy, and reads the answer to each before it sends the next.
func Talk(t testing.TB, c *http.Client, url string, header http.Header) {
	t.Helper()
	if err := talk(t.Context(), c, url, header); err != nil {
		t.Error(err)
	}
}

func talk(ctx context.Context, c *http.Client, url string, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, parts := io.Pipe()
	// A client waits for a body that is being read, even after the end of ctx.
	defer context.AfterFunc(ctx, func() { parts.CloseWithError(errors.New("the conversation is over")) })()
	defer parts.CloseWithError(errors.New("the conversation is over"))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := c.Do(r)
	if err != nil {
		return fmt.Errorf("no answer before the end of the request: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	for i := range 3 {
		sent := fmt.Sprintf("part %d", i)
		if _, err := io.WriteString(parts, sent); err != nil {
			return fmt.Errorf("send %s: %w", sent, err)
		}
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			return fmt.Errorf("the answer to %s: %w", sent, err)
		}
		if string(got) != sent {
			return fmt.Errorf("the answer to %s is %q", sent, got)
		}
	}
	if err := parts.Close(); err != nil {
		return err
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		return fmt.Errorf("after the end of the request: %q, %v", rest, err)
	}
	return nil
}
