package e2bapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// maxBody bounds a request to the control API.
	maxBody = 1 << 20
	// bodyTime is how long it may take to arrive.
	bodyTime = 30 * time.Second
)

// readBody reads a request's body whole.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, failf(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", maxBody)
	case err != nil:
		return nil, invalidf("read body: %v", err)
	}
	return b, nil
}

// decode reads JSON into v; an empty body leaves it as it is. Fields that are not known are
// passed over: clients send new ones every few weeks.
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
