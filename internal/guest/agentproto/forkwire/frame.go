package forkwire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Collected is sent by a waiter when it has received a child's end and result. The host keeps both
// until then.
const Collected = '+'

// NewReader returns a reader for ReadRequest and ReadAnswer.
func NewReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 4096) }

// WriteRequest sends a request and its result. The result may be empty.
func WriteRequest(w io.Writer, r Request, result []byte) error {
	r.Bytes = len(result)
	return write(w, r, result)
}

// ReadRequest reads a request and its result. It checks only their size and form.
func ReadRequest(r *bufio.Reader) (req Request, result []byte, err error) {
	if req, err = ReadHead(r); err == nil {
		result, err = ReadResult(r, req)
	}
	return req, result, err
}

// ReadHead reads a request without its result, for callers that may not need the result.
func ReadHead(r *bufio.Reader) (req Request, err error) {
	if err := readLine(r, maxRequestLine, &req); err != nil {
		return req, fmt.Errorf("read request: %w", err)
	}
	return req, nil
}

// ReadResult reads the result after a request's head.
func ReadResult(r *bufio.Reader, req Request) ([]byte, error) {
	result, err := readResult(r, req.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	return result, nil
}

// WriteAnswer sends an answer and its result.
func WriteAnswer(w io.Writer, a Answer, result []byte) error {
	a.Bytes = len(result)
	return write(w, a, result)
}

// ReadAnswer reads an answer and its result.
func ReadAnswer(r *bufio.Reader) (a Answer, result []byte, err error) {
	if err := readLine(r, maxAnswerLine, &a); err != nil {
		return a, nil, fmt.Errorf("read answer: %w", err)
	}
	if result, err = readResult(r, a.Bytes); err != nil {
		return a, nil, fmt.Errorf("read answer: %w", err)
	}
	return a, result, nil
}

// write sends the line and the bytes in one call. A branch cannot split the message, unless it is
// larger than a socket's buffer.
func write(w io.Writer, v any, result []byte) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = append(append(b, '\n'), result...)
	_, err = w.Write(b)
	return err
}

func readLine(r *bufio.Reader, limit int, v any) error {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return fmt.Errorf("its first line is longer than %d bytes", limit)
		case err == nil:
			if err := json.Unmarshal(line, v); err != nil {
				return fmt.Errorf("its first line is no JSON object of the right form: %w", err)
			}
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
}

func readResult(r io.Reader, n int) ([]byte, error) {
	switch {
	case n == 0:
		return nil, nil
	case n < 0 || n > MaxResult:
		return nil, fmt.Errorf("a result of %d bytes, want at most %d", n, MaxResult)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("its result ends early: %w", err)
	}
	return b, nil
}
