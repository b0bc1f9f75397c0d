package vmmctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// conn sends and receives messages with descriptors.
type conn struct {
	c *net.UnixConn
	// mu serialises writers; a SEQPACKET write is one whole message.
	mu sync.Mutex
}

// errLimit: a message that is refused before it is sent; the connection is sound.
var errLimit = errors.New("control message is over its limits")

func (c *conn) send(m message, files ...*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode control message: %w", err)
	}
	if len(b) > MaxMessage {
		return fmt.Errorf("%w: %s%s is %d bytes, want at most %d", errLimit, m.Op, m.Event, len(b), MaxMessage)
	}
	if len(files) > MaxFiles {
		return fmt.Errorf("%w: %s%s has %d descriptors, want at most %d", errLimit, m.Op, m.Event, len(files), MaxFiles)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _, err = c.c.WriteMsgUnix(b, oob, nil)
	return err
}

// receive returns the next message. The files are the caller's to close.
func (c *conn) receive(buf []byte) (m message, files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(buf, oob)
	if err != nil {
		return m, nil, err
	}
	files, ferr := takeFiles(oob[:oobn])
	switch {
	case n == 0 && oobn == 0:
		err = io.EOF
	case ferr != nil:
		err = ferr
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("control message was cut short")
	default:
		if err = json.Unmarshal(buf[:n], &m); err != nil {
			err = fmt.Errorf("decode control message: %w", err)
		}
	}
	if err != nil {
		closeAll(files)
		return m, nil, err
	}
	return m, files, nil
}

func takeFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control data: %w", err)
	}
	var files []*os.File
	for i := range cmsgs {
		fds, err := unix.ParseUnixRights(&cmsgs[i])
		if err != nil {
			continue // other kinds of control data carry no descriptors
		}
		for _, fd := range fds { // close-on-exec already: package net asks for that
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
