package main

import (
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// The generated code contains the descriptor it was made from.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	t.Chdir("..")
	for file, desc := range map[string]protoreflect.FileDescriptor{
		"process/process.proto":       process.File_process_process_proto,
		"filesystem/filesystem.proto": filesystem.File_filesystem_filesystem_proto,
		"agentv1/agent.proto":         agentv1.File_agentv1_agent_proto,
		"agentv1/inventory.proto":     agentv1.File_agentv1_inventory_proto,
	} {
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
		req, err := compile(t.Context(), []string{file})
		if err != nil {
			t.Fatal(err)
		}
		var want *descriptorpb.FileDescriptorProto
		for _, f := range req.ProtoFile {
			if f.GetName() == file {
				want = proto.CloneOf(f)
			}
		}
		want.SourceCodeInfo = nil
		if got := protodesc.ToFileDescriptorProto(desc); !proto.Equal(got, want) {
			t.Errorf("%s has changed: run go generate ./internal/guest/agentproto", file)
		}
	}
}
