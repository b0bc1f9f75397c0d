package e2bapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/fieldnames"
)

const (
	// maxBody limits the body of a request to the control API, in bytes.
	maxBody = 1 << 20
	// bodyTime limits the arrival of the whole body, which is held in memory.
	bodyTime = 30 * time.Second
)

// readBody reads a request's whole body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, failf(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", maxBody)
	case errors.As(err, new(*iodeadline.SilentError)):
		return nil, failf(http.StatusRequestTimeout, "%v", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, failf(http.StatusRequestTimeout, "the request's body did not arrive within %s", bodyTime)
	case err != nil:
		return nil, invalidf("read body: %v", err)
	}
	return b, nil
}

// headerWarning names ignored fields of a request that resemble known ones.
const headerWarning = "X-Forkd-Warning"

// decode reads the request's body into v. It ignores unknown fields, because clients send new ones
// every few weeks. A field that resembles a known one is probably a mistake: the answer and the log
// name it.
func (c call) decode(v any) error {
	if err := decode(c.body, v); err != nil {
		return err
	}
	var parts []string
	for _, f := range fieldnames.Unknown(c.body, v) {
		if f.Close {
			parts = append(parts, fmt.Sprintf("ignored unknown field %+q, did you mean %+q?", ellipsis.Clip(f.Path, 60),
				ellipsis.Clip(f.Near, 60)))
		}
	}
	if len(parts) > 0 {
		warning := strings.Join(parts, "; ") // ASCII
		warning = warning[:min(len(warning), maxWarning)]
		c.w.Header().Set(headerWarning, warning)
		c.log.Warn("request to E2B's API", "path", ellipsis.Clip(c.URL.Path, 200), "warning", warning)
	}
	return nil
}

// maxWarning limits a warning, in bytes.
const maxWarning = 500

// decode reads JSON into v. An empty body leaves v unchanged.
func decode(b []byte, v any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return invalidf("Error when parsing request body: %v", err)
	}
	return nil
}

// maxSeconds keeps arithmetic with deadlines in range: ten years.
const maxSeconds = 10 * 365 * 24 * 3600

// seconds checks a timeout of a request.
func seconds(name string, n, least int64) (time.Duration, error) {
	if n < least || n > maxSeconds {
		return 0, invalidf("%s must be between %d and %d seconds", name, least, int64(maxSeconds))
	}
	return time.Duration(n) * time.Second, nil
}
