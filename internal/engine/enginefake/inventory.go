package enginefake

import (
	"context"
	"os"
	"syscall"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// fakeInventory reports one more file in a guest with captured memory.
type fakeInventory struct{ f *fake }

func (i *fakeInventory) List(
	ctx context.Context, _ *connect.Request[agentv1.ListRequest], out *connect.ServerStream[agentv1.InventoryPart],
) error {
	part := &agentv1.InventoryPart{Files: []*agentv1.InventoryFile{{Path: []byte("/a")}}}
	if i.f.branched {
		part.Files = append(part.Files, &agentv1.InventoryFile{Path: []byte("/b"), Size: 3})
	}
	switch {
	case i.f.faulty("inventory-hang"):
		<-ctx.Done()
		return ctx.Err() // it has the caller's deadline, and the caller might still receive everything in time
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
