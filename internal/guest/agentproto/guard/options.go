package guard

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/protobound"
)

// Options returns the options of every Connect client of an agent. They disable compression: it
// would hide the size of an answer and cost the guest more than the link. They limit the size of
// messages, and their elements to the given number.
func Options(elements int) []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithReadMaxBytes(agentproto.MaxMessageBytes),
		connect.WithCodec(codec{elements}),
	}
}

// codec is Connect's codec for binary messages, with limits on decoding.
type codec struct{ elements int }

// Name implements connect.Codec.
func (codec) Name() string { return "proto" }

// IsBinary reports to Connect that messages are binary and not text.
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
