package agentclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Defaults holds the default environment, user and working directory of a guest.
type Defaults struct {
	Env     map[string]string `json:"env,omitempty"`     // overrides the present ones
	User    string            `json:"user,omitempty"`    // if empty, unchanged
	Workdir string            `json:"workdir,omitempty"` // if empty, unchanged
}

// ChangeDefaults changes the defaults set in d, in this guest and in all its later forks.
func (c *Client) ChangeDefaults(ctx context.Context, d Defaults) error {
	ctx, cancel := bounded(ctx, shortCall)
	defer cancel()
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("change defaults: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+"/defaults", bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("change defaults: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("change defaults: %w", said(err))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNoContent:
		return nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return errors.New("change defaults: the guest's agent is an older one that cannot: build the image again")
	}
	refused := &FileError{Message: resp.Status}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(refused)
	refused.Code = resp.StatusCode
	return fmt.Errorf("change defaults: %w", refused)
}
