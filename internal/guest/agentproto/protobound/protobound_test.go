package protobound

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// emptyFiles returns n files of two bytes each.
func emptyFiles(n int) []byte {
	return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil), n)
}

func TestElementsAreBounded(t *testing.T) {
	var m agentv1.InventoryPart
	if err := Decode(emptyFiles(10), &m, 10); err != nil || len(m.GetFiles()) != 10 {
		t.Fatalf("%d files: %v", len(m.GetFiles()), err)
	}
	var broke *agentproto.Violation
	if err := Decode(emptyFiles(11), &agentv1.InventoryPart{}, 10); !errors.As(err, &broke) {
		t.Errorf("11 files, want at most 10: %v", err)
	}
	modules := map[string]string{"a": "1", "b": "2"}
	ping, err := proto.Marshal(&agentv1.PingResponse{Capabilities: []string{"x", "y"},
		Interpreters: []*agentv1.Interpreter{{Modules: modules}}})
	if err != nil {
		t.Fatal(err)
	}
	const elements = 5 // two strings, an interpreter and its two modules
	if err := Decode(ping, &agentv1.PingResponse{}, elements); err != nil {
		t.Error(err)
	}
	if err := Decode(ping, &agentv1.PingResponse{}, elements-1); !errors.As(err, &broke) {
		t.Errorf("%d elements, want at most %d: %v", elements, elements-1, err)
	}
}

func TestAHugeMessageOfTinyElementsCostsNothing(t *testing.T) {
	b := emptyFiles(agentproto.MaxMessageBytes / 2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if Decode(b, &agentv1.InventoryPart{}, MaxElements) == nil {
		t.Fatal("it was decoded")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("refusing %d MiB of files allocates %d bytes", len(b)>>20, n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(emptyFiles(5))
	f.Add([]byte{0x0a, 0x02, 0x08})
	start, err := proto.Marshal(&process.StartResponse{Event: &process.ProcessEvent{
		Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(start)
	const most = 8
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, of := range []proto.Message{
			&agentv1.InventoryPart{}, &agentv1.PingResponse{}, &agentv1.IdentityAnswer{}, &process.StartResponse{},
		} {
			plain := of.ProtoReflect().New().Interface()
			got := Decode(b, of, most)
			if want := proto.Unmarshal(b, plain); got == nil && (want != nil || !equal(of, plain)) {
				t.Fatalf("decoded %v, want %v, %v", of, plain, want)
			}
			if p, ok := of.(*agentv1.InventoryPart); ok && len(p.Files)+len(p.Processes)+len(p.Packages) > most {
				t.Fatalf("%d elements, want at most %d", len(p.Files)+len(p.Processes)+len(p.Packages), most)
			}
		}
	})
}

// equal compares encodings, because NaN differs from itself in proto.Equal.
func equal(a, b proto.Message) bool {
	x, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	y, err2 := proto.MarshalOptions{Deterministic: true}.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}
