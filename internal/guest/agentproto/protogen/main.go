// Command protogen generates Go from the contract's .proto files. It is a development tool, run by
// `go generate`. It uses a compiler written in Go and the generators from the module graph, so
// protoc is not needed. The .proto files define the format.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const module = "github.com/forkd/forkd/internal/guest/agentproto"

// plugins run in this order. Both come with libraries linked by the agent.
var plugins = []string{
	"google.golang.org/protobuf/cmd/protoc-gen-go",
	"connectrpc.com/connect/cmd/protoc-gen-connect-go",
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, files []string) error {
	req, err := compile(ctx, files)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		if err := generate(ctx, plugin, req); err != nil {
			return fmt.Errorf("run %s: %w", plugin, err)
		}
	}
	return nil
}

func compile(ctx context.Context, files []string) (*pluginpb.CodeGeneratorRequest, error) {
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{}),
		SourceInfoMode: protocompile.SourceInfoStandard, // copies comments into the Go code
	}
	out, err := c.Compile(ctx, files...)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	req := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      proto.String("module=" + module),
	}
	seen := map[string]bool{}
	for _, f := range out {
		// Generators expect every import before the importing file.
		for i := range f.Imports().Len() {
			imp := f.Imports().Get(i)
			if !seen[imp.Path()] {
				seen[imp.Path()] = true
				req.ProtoFile = append(req.ProtoFile, protodesc.ToFileDescriptorProto(imp.FileDescriptor))
			}
		}
		req.ProtoFile = append(req.ProtoFile, describe(f))
	}
	return req, nil
}

func describe(f interface{ Path() string }) *descriptorpb.FileDescriptorProto {
	// The compiler's result has the source comments; a rebuilt descriptor would not have them.
	return f.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}).FileDescriptorProto()
}

func generate(ctx context.Context, plugin string, req *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", plugin)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(raw, &resp); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	if resp.Error != nil {
		return fmt.Errorf("generator says: %s", resp.GetError())
	}
	for _, f := range resp.File {
		if err := write(f.GetName(), f.GetContent()); err != nil {
			return err
		}
	}
	return nil
}

func write(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make folder for %s: %w", name, err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
