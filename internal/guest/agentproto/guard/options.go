package guard

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/protobound"
)

// Options are those of every Connect client of an agent: no compression, which would hide
// the size of an answer and cost the guest more than the link, and bounded messages of at
// most that many elements.
func Options(elements int) []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithReadMaxBytes(agentproto.MaxMessageBytes),
		connect.WithCodec(codec{elements}),
	}
}

// codec is Connect's for binary messages, with bounded decoding.
type codec struct{ elements int }

// Name implements connect.Codec.
func (codec) Name() string { return "proto" }

// IsBinary tells Connect that messages are no text.
func (codec) IsBinary() bool { return true }

// Marshal implements connect.Codec.
func (codec) Marshal(m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", m)
	}
	return proto.Marshal(p)
}

// Unmarshal implements connect.Codec.
func (c codec) Unmarshal(b []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", m)
	}
	return protobound.Decode(b, p, c.elements)
}
