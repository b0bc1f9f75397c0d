package engine

import (
	"context"
	"os"
	"syscall"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// fakeInventory has a file more in a guest whose memory was captured.
type fakeInventory struct{ f *fake }

func (i *fakeInventory) List(ctx context.Context, _ *connect.Request[agentv1.ListRequest], out *connect.ServerStream[agentv1.InventoryPart]) error {
	part := &agentv1.InventoryPart{Files: []*agentv1.InventoryFile{{Path: []byte("/a")}}}
	if i.f.branched {
		part.Files = append(part.Files, &agentv1.InventoryFile{Path: []byte("/b"), Size: 3})
	}
	switch {
	case i.f.faulty("inventory-hang"):
		<-ctx.Done()
		return ctx.Err() // its deadline is the caller's, who might see all come in time
	case i.f.faulty("inventory-lie"):
		part.Files = append(part.Files, part.Files[0])
	case i.f.faulty("inventory-break"):
		return out.Send(part)
	case i.f.faulty("inventory-die"):
		if err := out.Send(part); err != nil {
			return err
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err := out.Send(part); err != nil {
		return err
	}
	return out.Send(&agentv1.InventoryPart{End: &agentv1.InventoryEnd{}})
}
