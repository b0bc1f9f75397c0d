// Package msgwire is the form of messages on vsock ports without HTTP: identities
// (agentproto.IdentityPort) and evaluations (agentproto.EvalPort). Both delay the first use of a
// clone. If the agent used HTTP for them, every clone would have to copy the pages that HTTP
// touches.
//
// Either side may be hostile. So a message has a size limit, and memory grows with the bytes
// received, not with the announced length.
package msgwire

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/protobound"
)

// MaxIdentityBytes limits an identity message. It contains an environment and the output of hooks.
const MaxIdentityBytes = 4 << 20

// Write sends a message of up to most bytes in one write: its length in four bytes, big endian,
// then its bytes.
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

// Read receives a message of up to most bytes into m. It returns io.EOF if the stream ends before a
// message.
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
