// Package tokenwire is the wire format by which a guest asks its host for an identity token, over
// agentproto.TokenPort: one JSON line in each direction, then the connection ends. See
// docs/inside/formats/identity-token.md. The host knows the asking VM by its port, so a request names
// no sandbox. Both ends are hostile to each other: lines are bounded, and unknown fields are ignored.
package tokenwire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Limits of a line, including its newline.
const (
	maxRequest = 4 << 10
	maxAnswer  = 16 << 10
	maxText    = 300 // bytes of an error's message
)

// Request asks for a token.
type Request struct {
	Audience string `json:"audience"` // the service that will check the token
}

// Answer is a token or an error.
type Answer struct {
	Error   *Error `json:"error,omitempty"`   // if set, the other fields are unset
	Token   string `json:"token,omitempty"`   // a JWT
	Expires int64  `json:"expires,omitempty"` // seconds since 1970
}

// Code is the kind of an error.
type Code string

const (
	Invalid     Code = "invalid"     // the request is wrong
	Denied      Code = "denied"      // this sandbox gets no tokens
	Limit       Code = "limit"       // too many tokens; try again
	Unavailable Code = "unavailable" // the host does not answer, or cannot sign
)

// Error is the error of a failed request.
type Error struct {
	Code    Code   `json:"code"`    // the kind, for programs
	Message string `json:"message"` // for people, at most maxText bytes
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error with a formatted text.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: ellipsis.Clip(fmt.Sprintf(format, args...), maxText)}
}

// WriteRequest sends a request.
func WriteRequest(w io.Writer, r Request) error { return write(w, r) }

// ReadRequest reads a request. It checks only its size and form.
func ReadRequest(r io.Reader) (req Request, err error) {
	if err := read(r, maxRequest, &req); err != nil {
		return Request{}, fmt.Errorf("read request: %w", err)
	}
	return req, nil
}

// WriteAnswer sends an answer.
func WriteAnswer(w io.Writer, a Answer) error { return write(w, a) }

// ReadAnswer reads an answer. It has either a token or an error.
func ReadAnswer(r io.Reader) (a Answer, err error) {
	if err := read(r, maxAnswer, &a); err != nil {
		return Answer{}, fmt.Errorf("read answer: %w", err)
	}
	if (a.Error == nil) == (a.Token == "") {
		return Answer{}, errors.New("read answer: want a token or an error")
	}
	return a, nil
}

func write(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// read reads one line of at most limit bytes. It may read beyond the line, as only one is sent.
func read(r io.Reader, limit int, v any) error {
	line, err := bufio.NewReaderSize(io.LimitReader(r, int64(limit)), limit).ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return fmt.Errorf("the line is longer than %d bytes", limit)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("the line is no JSON object of the right form: %w", err)
	}
	return nil
}
