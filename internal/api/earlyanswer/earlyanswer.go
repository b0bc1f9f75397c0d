// Package earlyanswer lets handlers answer before they have read all of a request. It owns the one
// consequence: over HTTP/1.1 what was not read stands between this request and the next one of the
// connection, so net/http closes it, and in full duplex it does so without telling; a client that
// keeps connections then sends its next request into one that is closed. Proxies to guests call it.
package earlyanswer

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Allow lets a handler write its answer while it reads the request, whose body it replaces. An answer
// that begins before that was read to its end says that the connection closes after it.
func Allow(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 can do so anyway, and says it cannot
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return w
	}
	b := &body{ReadCloser: r.Body}
	r.Body = b
	return &writer{ResponseWriter: w, body: b}
}

// body knows whether it was read to its end. A proxy reads it beside the writer.
type body struct {
	io.ReadCloser
	ended atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// writer tells the client before the first byte of the answer.
type writer struct {
	http.ResponseWriter
	body *body
	told bool
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	if !w.told && status >= http.StatusOK {
		w.told = true
		if !w.body.ended.Load() {
			w.Header().Set("Connection", "close")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	if !w.told {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}
