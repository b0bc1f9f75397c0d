// Package msgwire is the form in which messages travel on vsock ports without HTTP: an
// identity (agentproto.IdentityPort) and an evaluation (agentproto.EvalPort). Each is on
// the way to a clone's first use, and each page that its agent touches for HTTP is one that
// every clone copies. The trap: either side may be hostile, so a message is bounded, and memory
// is taken for what came and not for what was announced.
package msgwire

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/protobound"
)

// MaxIdentityBytes bounds an identity: an environment and what hooks print are in it.
const MaxIdentityBytes = 4 << 20

// Write sends a message of at most so many bytes: its length in four bytes, big endian, and its bytes, in one write.
func Write(w io.Writer, m proto.Message, most int) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 1024), m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name(m), err)
	}
	if len(b)-4 > most {
		return fmt.Errorf("%s of %d bytes, want at most %d", name(m), len(b)-4, most)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err = w.Write(b)
	return err
}

// Read receives a message of at most so many bytes into m. io.EOF: there is none.
func Read(r io.Reader, m proto.Message, most int) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(most) {
		return agentproto.Violationf("%s of %d bytes, want at most %d", name(m), n, most)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(b) != int(n) {
		return io.ErrUnexpectedEOF
	}
	return protobound.Decode(b, m, protobound.MaxElements)
}

func name(m proto.Message) string { return string(m.ProtoReflect().Descriptor().Name()) }
