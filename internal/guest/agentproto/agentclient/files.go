package agentclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// FileError is the agent's refusal of a transfer.
type FileError struct {
	Code    int    `json:"code"`    // HTTP status: 404 no such file, 400 no regular file, 507 disk full
	Message string `json:"message"` // the agent's text, otherwise the HTTP status line
}

func (e *FileError) Error() string { return guesttext.Lines(e.Message).String() }

// Is reports whether the error is a missing file and target is fs.ErrNotExist.
func (e *FileError) Is(target error) bool {
	return target == fs.ErrNotExist && e.Code == http.StatusNotFound
}

// Download writes the contents of a guest's file to w and returns the number of bytes written. If
// user is empty, the guest's default user reads the file.
func (c *Client) Download(ctx context.Context, path, user string, w io.Writer) (int64, error) {
	resp, err := c.fileRequest(ctx, http.MethodGet, path, user, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("download %s: %w", path, said(err))
	}
	defer resp.Body.Close()
	n, err := io.Copy(w, resp.Body)
	if err != nil {
		return n, fmt.Errorf("download %s: %w", path, said(err))
	}
	return n, nil
}

// Upload writes r to a file in the guest. It creates or replaces the file and creates missing
// parent directories. If mode is 0, an existing file keeps its mode.
func (c *Client) Upload(ctx context.Context, path, user string, mode fs.FileMode, r io.Reader) error {
	resp, err := c.fileRequest(ctx, http.MethodPost, path, user, mode, r)
	if err != nil {
		return fmt.Errorf("upload %s: %w", path, said(err))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return nil
}

func (c *Client) fileRequest(ctx context.Context, method, path, user string, mode fs.FileMode,
	body io.Reader) (*http.Response, error) {
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("username", user)
	}
	if mode != 0 {
		q.Set("mode", fmt.Sprintf("%o", mode.Perm()))
	}
	req, err := http.NewRequestWithContext(ctx, method, baseURL+"/files?"+q.Encode(), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	fe := &FileError{Code: resp.StatusCode, Message: resp.Status}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(fe)
	fe.Code = resp.StatusCode
	return nil, fe
}
