package s3sign

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
)

// Refusal is the reason why a request is not signed. It contains no keys.
type Refusal struct {
	// Status is the HTTP status of the answer.
	Status int
	// Code is S3's word for the error.
	Code string
	// Text is a sentence for people.
	Text string
}

func (r *Refusal) Error() string { return r.Text }

func denied(err error) error {
	return &Refusal{http.StatusForbidden, "AccessDenied", "forkd refused the request: " + err.Error()}
}

func invalid(err error) error {
	return &Refusal{http.StatusBadRequest, "InvalidRequest", "forkd refused the request: " + err.Error()}
}

// Refuse answers a guest's request with an error of Sign, in the form of S3.
func (s *Signer) Refuse(w http.ResponseWriter, err error) {
	var why *Refusal
	if !errors.As(err, &why) {
		why = &Refusal{http.StatusInternalServerError, "InternalError", "the request cannot be signed"}
	}
	var text bytes.Buffer
	xml.EscapeText(&text, []byte(why.Text))
	body := xml.Header + "<Error><Code>" + why.Code + "</Code><Message>" + text.String() + "</Message></Error>"
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(why.Status)
	_, _ = w.Write([]byte(body))
}
