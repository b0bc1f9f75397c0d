package s3sign

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

const (
	maxChunkLine = 4 << 10
	maxTrailers  = 16
)

var errChunks = errors.New("the aws-chunked body is broken")

// chunked reads the plain bytes of an aws-chunked body. It does not check the signatures of the chunks, which are made
// with the guest's own keys.
type chunked struct {
	from *bufio.Reader
	left int64 // in this chunk
	rest int64 // of all declared bytes
	err  error
}

func newChunked(body io.Reader, length int64) *chunked {
	return &chunked{from: bufio.NewReaderSize(body, maxChunkLine), rest: length}
}

func (c *chunked) Read(p []byte) (int, error) {
	if c.err == nil && c.left == 0 {
		c.err = c.next()
	}
	if c.err != nil || len(p) == 0 {
		return 0, c.err
	}
	n, err := c.from.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	switch {
	case err != nil:
		c.err = io.ErrUnexpectedEOF
	case c.left == 0:
		c.err = c.endLine()
	}
	return n, c.err
}

// next reads the head of a chunk, and all that follows the last one.
func (c *chunked) next() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	size, _, _ := bytes.Cut(line, []byte(";"))
	n, err := strconv.ParseUint(string(size), 16, 62)
	if err != nil || int64(n) > c.rest {
		return errChunks
	}
	c.left = int64(n)
	c.rest -= c.left
	if n > 0 {
		return nil
	}
	if c.rest > 0 {
		return io.ErrUnexpectedEOF
	}
	return c.trailers()
}

// trailers reads to the end of the body. The last empty line may be absent.
func (c *chunked) trailers() error {
	for range maxTrailers {
		line, err := c.line()
		if errors.Is(err, io.ErrUnexpectedEOF) && len(line) == 0 {
			return io.EOF
		}
		if err != nil {
			return err
		}
		if len(line) == 0 {
			if _, err := c.from.ReadByte(); errors.Is(err, io.EOF) {
				return io.EOF
			}
			return errChunks
		}
	}
	return errChunks
}

func (c *chunked) endLine() error {
	line, err := c.line()
	if err == nil && len(line) > 0 {
		err = errChunks
	}
	return err
}

// line returns the next line without its end.
func (c *chunked) line() ([]byte, error) {
	line, err := c.from.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF):
		return line, io.ErrUnexpectedEOF
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errChunks
	case err != nil:
		return nil, err
	case len(line) < 2 || line[len(line)-2] != '\r':
		return nil, errChunks
	}
	return line[:len(line)-2], nil
}
