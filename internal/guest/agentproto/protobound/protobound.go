// Package protobound decodes messages from a possibly hostile peer. The size of a message on the
// wire does not limit its size in memory: two bytes of a repeated field become a struct of some
// hundred bytes. Decode counts the elements of a message before it decodes them.
//
// Pass an empty message to Decode, because proto.Unmarshal resets it first.
package protobound

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// MaxElements limits the elements of one message: nested messages, map entries and values of
// repeated fields. The largest honest message is the listing of a directory, with three elements
// per file.
const MaxElements = 1 << 16

// maxDepth limits the nesting of messages. The protocol's own messages have four levels.
const maxDepth = 16

// Decode decodes b into m. It returns a *agentproto.Violation if b is malformed or has more than
// most elements.
func Decode(b []byte, m proto.Message, most int) error {
	left := most
	if err := count(b, m.ProtoReflect().Descriptor(), maxDepth, &left); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return agentproto.Violationf("decode %s: %v", m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// count subtracts the elements of a message from left. proto.Unmarshal keeps unknown fields as
// bytes, so they cost no more memory than on the wire.
func count(b []byte, of protoreflect.MessageDescriptor, depth int, left *int) error {
	if depth == 0 {
		return agentproto.Violationf("%s is nested more than %d deep", of.Name(), maxDepth)
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(of)
		}
		value := b[n:]
		size := protowire.ConsumeFieldValue(num, typ, value)
		if size < 0 {
			return malformed(of)
		}
		b = value[size:]
		field := of.Fields().ByNumber(num)
		if field == nil {
			continue
		}
		if err := countField(value[:size], typ, field, depth, left); err != nil {
			return err
		}
	}
	return nil
}

func countField(value []byte, typ protowire.Type, f protoreflect.FieldDescriptor, depth int, left *int) error {
	nested := f.Message() != nil && typ == protowire.BytesType
	switch {
	case !nested && !f.IsList():
		return nil // a single value replaces the previous one
	case !nested && typ == protowire.BytesType && !isBytes(f):
		*left -= len(value) // packed: at most one value per byte
	default:
		*left--
	}
	if *left < 0 {
		return agentproto.Violationf("%s has more elements than a message may", f.Parent().Name())
	}
	if !nested {
		return nil
	}
	inner, _ := protowire.ConsumeBytes(value)
	return count(inner, f.Message(), depth-1, left)
}

func isBytes(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
}

func malformed(of protoreflect.MessageDescriptor) error {
	return agentproto.Violationf("%s is malformed", of.Name())
}
