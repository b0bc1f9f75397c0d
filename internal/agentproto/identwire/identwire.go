// Package identwire is the form in which an identity travels: on a port of its own
// (agentproto.IdentityPort), one message each way and no HTTP. A clone's identity is on
// the way to its first use, and each page that its agent touches for it is one that every
// clone copies. The trap: either side may be hostile, so a message is bounded, and memory
// is taken for what came and not for what was announced.
package identwire

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// MaxBytes bounds a message: an environment and what hooks print are in it.
const MaxBytes = 4 << 20

// Write sends a message: its length in four bytes, big endian, and its bytes, in one write.
func Write(w io.Writer, m proto.Message) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 1024), m)
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	if len(b)-4 > MaxBytes {
		return fmt.Errorf("identity of %d bytes, want at most %d", len(b)-4, MaxBytes)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err = w.Write(b)
	return err
}

// Read receives a message into m.
func Read(r io.Reader, m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxBytes {
		return fmt.Errorf("identity of %d bytes, want at most %d", n, MaxBytes)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(b) != int(n) {
		return io.ErrUnexpectedEOF
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("decode identity: %w", err)
	}
	return nil
}
