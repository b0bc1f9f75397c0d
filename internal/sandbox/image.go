package sandbox

import "context"

// Images is the store of built images, as far as the engine needs it.
type Images interface {
	// Image finds an image by name; ErrNotFound if there is none.
	Image(ctx context.Context, name string) (Image, error)
}

// Image is what a parent boots.
type Image struct {
	Name, Digest     string
	Kernel           string // path of an ELF kernel
	Initrd           string // path; may be empty
	Root             string // path of the root disk, which is never written
	Upper            string // path of the empty disk, a base layer, that takes what the guest writes; empty: memory does
	KernelVersion    string
	Cmdline          string // added to the kernel's command line
	MemoryMiB, VCPUs int
	Warm             []WarmStep
}

// WarmStep is code that is run in a language's interpreter before the snapshot.
type WarmStep struct {
	Language string
	Code     string // may be empty: only start the interpreter
}
