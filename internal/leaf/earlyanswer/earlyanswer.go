// Package earlyanswer lets handlers answer before they have read the whole request. It handles the
// consequence for HTTP/1.1: the unread bytes precede the next request of the connection, so
// net/http closes the connection. In full duplex net/http does not announce this, and a client that
// keeps connections then sends its next request on a closed connection. Proxies to guests use this
// package: without it, net/http reads the rest of a request before the answer begins, and may take
// it from the proxy that forwards it, which then breaks the connection to the server.
package earlyanswer

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Allow lets a handler write its answer while it reads the request. It replaces the request's body.
// If the answer begins before the body was read to its end, the answer announces that the
// connection will close.
func Allow(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always can, but returns an error
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return w
	}
	b := &body{ReadCloser: r.Body}
	r.Body = b
	return &writer{ResponseWriter: w, body: b}
}

// body records whether it was read to its end. A proxy reads it concurrently with the writer.
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

// writer announces the close before the first byte of the answer.
type writer struct {
	http.ResponseWriter
	body *body
	told bool
}

// Unwrap implements the interface of http.ResponseController.
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
