package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
)

// sendLimit is how long the other side may leave its socket full.
const sendLimit = 30 * time.Second

// errMessage is the error for an invalid message.
var errMessage = errors.New("bad control message")

// conn sends and receives envelopes. One goroutine may receive, any number may send.
type conn struct {
	c    *net.UnixConn
	buf  []byte // for the receiver
	send sync.Mutex
}

func (c *conn) close() { c.c.Close() }

// write sends an envelope with body and files. The caller keeps the files.
func (c *conn) write(e envelope, body any, files []*os.File) (err error) {
	if body != nil {
		if e.Body, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode %s: %w", e.Op, err)
		}
	}
	if len(e.Body) > maxInline-1024 { // the rest of an envelope is short, except the text of an error
		long, err := putLong(e.Body)
		if err != nil {
			return err
		}
		defer long.Close()
		e.Long, e.Body = int64(len(e.Body)), nil
		files = append(files[:len(files):len(files)], long)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.Op, err)
	}
	return c.writePacket(b, files)
}

func (c *conn) writePacket(b []byte, files []*os.File) error {
	defer runtime.KeepAlive(files) // oob contains only their numbers
	oob, err := unixfd.Rights(files...)
	if err != nil {
		return err
	}
	c.send.Lock()
	defer c.send.Unlock()
	c.c.SetWriteDeadline(time.Now().Add(sendLimit))
	if _, _, err := c.c.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	return nil
}

// read returns the next envelope and up to most descriptors. The caller owns them.
func (c *conn) read(most int) (envelope, []int, error) {
	if c.buf == nil {
		c.buf = make([]byte, maxInline+1)
	}
	oob := make([]byte, unix.CmsgSpace(4*(most+1))) // and a memfd
	n, oobn, flags, _, err := c.c.ReadMsgUnix(c.buf, oob)
	if err != nil {
		return envelope{}, nil, err
	}
	fds, err := unixfd.Taken(oob[:oobn])
	if err != nil {
		return envelope{}, nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	e, fds, err := decodePacket(c.buf[:n], flags, fds)
	if err == nil && len(fds) > most {
		err = fmt.Errorf("%w: %d descriptors, want at most %d", errMessage, len(fds), most)
	}
	if err != nil {
		unixfd.Close(fds)
		return envelope{}, nil, err
	}
	return e, fds, nil
}

// decodePacket decodes a packet. The result does not refer to b.
func decodePacket(b []byte, flags int, fds []int) (e envelope, rest []int, err error) {
	switch {
	case flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0:
		return e, fds, fmt.Errorf("%w: over its limits", errMessage)
	case len(b) == 0 && len(fds) == 0:
		return e, nil, io.EOF
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fds, fmt.Errorf("%w: %w", errMessage, err)
	}
	if e.Long == 0 {
		return e, fds, nil
	}
	if len(fds) == 0 || len(e.Body) > 0 {
		return e, fds, fmt.Errorf("%w: long body without its descriptor", errMessage)
	}
	last := len(fds) - 1
	long := os.NewFile(uintptr(fds[last]), "long body")
	defer long.Close()
	e.Body, err = takeLong(long, e.Long)
	return e, fds[:last], err
}

// longSeals fix the content and length of a memfd.
const longSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

func putLong(body []byte) (*os.File, error) {
	if len(body) > maxBody {
		return nil, fmt.Errorf("%w: %d bytes in a control message, want at most %d", ErrLimit, len(body), maxBody)
	}
	fd, err := unix.MemfdCreate("netd-control", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "long body")
	if _, err = f.Write(body); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, longSeals)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("put control message in memory: %w", err)
	}
	return f, nil
}

// takeLong reads a body that can no longer change. It accepts only a sealed memfd: reading another
// file might block or fail in the middle.
func takeLong(f *os.File, size int64) ([]byte, error) {
	if size <= 0 || size > maxBody {
		return nil, fmt.Errorf("%w: long body of %d bytes", errMessage, size)
	}
	if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&longSeals != longSeals {
		return nil, fmt.Errorf("%w: long body is in no sealed memfd", errMessage)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("%w: long body: %w", errMessage, err)
	}
	return b, nil
}

// checkPeer returns an error unless the other side is this process's user or root.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil {
		return ctlErr
	}
	if err != nil {
		return os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	return allowed(int(cred.Uid), os.Geteuid())
}

func allowed(peer, self int) error {
	if peer != 0 && peer != self {
		return fmt.Errorf("the other side of the control socket is user %d, want %d or 0", peer, self)
	}
	return nil
}
