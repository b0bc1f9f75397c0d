package wire

import (
	"os"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Each request has a body, an encoder and a decoder. The decoded value owns the files. On error
// they are closed.

type diskBody struct {
	File     fileRef `json:"file,omitempty"`
	ReadOnly bool    `json:"read_only,omitempty"`
	Overlay  fileRef `json:"overlay,omitempty"`
	Size     int64   `json:"size,omitempty"`
	Base     int     `json:"base,omitempty"` // number of extents
	Reserve  int64   `json:"reserve,omitempty"`
	Limit    int64   `json:"limit,omitempty"`
}

func (r *Request) disks(disks []vmm.Disk) (out []diskBody) {
	for _, d := range disks {
		b := diskBody{ReadOnly: d.ReadOnly, Size: d.Size, Reserve: d.Reserve, Limit: d.Limit}
		switch {
		case d.Overlay != nil:
			b.Overlay, b.Base = r.file(d.Overlay, AsIs), r.base(d.Base)
		case d.ReadOnly:
			b.File = r.file(d.File, Read)
		default:
			b.File = r.file(d.File, AsIs)
		}
		out = append(out, b)
	}
	return out
}

func (a *arrival) disks(bodies []diskBody) (out []vmm.Disk) {
	for _, b := range bodies {
		d := vmm.Disk{ReadOnly: b.ReadOnly, Size: b.Size, Reserve: b.Reserve, Limit: b.Limit}
		if b.Overlay != 0 {
			d.Overlay, d.Base = a.file(b.Overlay), a.base(b.Base)
		} else {
			d.File = a.file(b.File)
		}
		out = append(out, d)
	}
	return out
}

type bootBody struct {
	Kernel  fileRef    `json:"kernel"`
	Initrd  fileRef    `json:"initrd,omitempty"`
	Cmdline string     `json:"cmdline"`
	Disks   []diskBody `json:"disks,omitempty"`
	CID     uint32     `json:"cid"`
	GenID   []byte     `json:"gen_id"`
	Net     fileRef    `json:"net,omitempty"`
}

// Boot returns an OpBoot request.
func Boot(c vmm.BootConfig) *Request {
	r := Ask(OpBoot)
	r.body = bootBody{
		Kernel: r.file(c.Kernel, Read), Initrd: r.file(c.Initrd, Read), Cmdline: c.Cmdline,
		Disks: r.disks(c.Disks), CID: c.CID, GenID: c.GenID[:], Net: r.file(c.Net, AsIs),
	}
	return r
}

// ReadBoot decodes OpBoot.
func ReadBoot(m Message, files []*os.File) (c vmm.BootConfig, err error) {
	var b bootBody
	a := arrive(m, files, &b)
	c = vmm.BootConfig{
		Kernel: a.file(b.Kernel), Initrd: a.optional(b.Initrd), Cmdline: b.Cmdline,
		Disks: a.disks(b.Disks), CID: b.CID, GenID: a.genID(b.GenID), Net: a.optional(b.Net),
	}
	return c, a.end()
}

type restoreBody struct {
	Memory  int        `json:"memory"` // number of extents
	State   fileRef    `json:"state"`
	Disks   []diskBody `json:"disks,omitempty"`
	CID     uint32     `json:"cid"`
	GenID   []byte     `json:"gen_id"`
	Prepare bool       `json:"prepare,omitempty"`
	Gate    fileRef    `json:"gate,omitempty"`
	Watch   bool       `json:"watch,omitempty"`
	Net     fileRef    `json:"net,omitempty"`
	Keep    bool       `json:"keep_members,omitempty"`
}

// Restore returns an OpRestore request.
func Restore(c vmm.RestoreConfig) *Request {
	r := Ask(OpRestore)
	r.body = restoreBody{
		Memory: r.extents(c.Memory), State: r.file(c.State, Read), Disks: r.disks(c.Disks), CID: c.CID, GenID: c.GenID[:],
		Prepare: c.Prepare, Gate: r.file(c.Gate, AsIs), Watch: c.Watch, Net: r.file(c.Net, AsIs),
		Keep: c.KeepMembers,
	}
	return r
}

// ReadRestore decodes OpRestore.
func ReadRestore(m Message, files []*os.File) (c vmm.RestoreConfig, err error) {
	var b restoreBody
	a := arrive(m, files, &b)
	c = vmm.RestoreConfig{
		Memory: a.extents(b.Memory), State: a.file(b.State), Disks: a.disks(b.Disks), CID: b.CID, GenID: a.genID(b.GenID),
		Prepare: b.Prepare, Gate: a.optional(b.Gate), Watch: b.Watch, Net: a.optional(b.Net),
		KeepMembers: b.Keep,
	}
	return c, a.end()
}

type captureBody struct {
	Memory fileRef       `json:"memory"`
	State  fileRef       `json:"state"`
	Index  fileRef       `json:"index"`
	Disks  []fileRef     `json:"disks,omitempty"`
	Digest fileRef       `json:"digest,omitempty"`
	Force  bool          `json:"force,omitempty"`
	Live   bool          `json:"live,omitempty"`
	Stay   bool          `json:"stay,omitempty"`
	Max    time.Duration `json:"max_pause_ns,omitempty"`
	Cut    fileRef       `json:"cut,omitempty"`
}

// Capture returns an OpCapture request.
func Capture(c vmm.CaptureConfig) *Request {
	r := Ask(OpCapture)
	r.body = captureBody{
		Memory: r.file(c.Memory, Write), State: r.file(c.State, Write), Index: r.file(c.Index, Write),
		Disks: r.fileList(c.Disks, Write), Digest: r.file(c.Digest, Write), Force: c.Force, Live: c.Live,
		Stay: c.Stay, Max: c.Max, Cut: r.file(c.Cut, AsIs),
	}
	return r
}

// ReadCapture decodes OpCapture.
func ReadCapture(m Message, files []*os.File) (c vmm.CaptureConfig, err error) {
	var b captureBody
	a := arrive(m, files, &b)
	c = vmm.CaptureConfig{
		Memory: a.file(b.Memory), State: a.file(b.State), Index: a.file(b.Index),
		Disks: a.fileList(b.Disks), Digest: a.optional(b.Digest), Force: b.Force, Live: b.Live,
		Stay: b.Stay, Max: b.Max, Cut: a.optional(b.Cut),
	}
	return c, a.end()
}

type saveBody struct {
	Memory fileRef   `json:"memory"`
	State  fileRef   `json:"state"`
	Disks  []fileRef `json:"disks,omitempty"`
	Digest fileRef   `json:"digest,omitempty"`
}

// Save returns an OpSave request.
func Save(c vmm.SaveConfig) *Request {
	r := Ask(OpSave)
	r.body = saveBody{
		Memory: r.file(c.Memory, Write), State: r.file(c.State, Write),
		Disks: r.fileList(c.Disks, Write), Digest: r.file(c.Digest, Write),
	}
	return r
}

// ReadSave decodes OpSave.
func ReadSave(m Message, files []*os.File) (c vmm.SaveConfig, err error) {
	var b saveBody
	a := arrive(m, files, &b)
	c = vmm.SaveConfig{
		Memory: a.file(b.Memory), State: a.file(b.State), Disks: a.fileList(b.Disks), Digest: a.optional(b.Digest),
	}
	return c, a.end()
}

// rebaseBody has an entry per disk with an overlay file: the number of extents of its base.
type rebaseBody struct {
	Bases []int `json:"bases"`
}

// Rebase returns an OpRebase request.
func Rebase(bases [][]extent.Extent) *Request {
	r := Ask(OpRebase)
	var b rebaseBody
	for _, list := range bases {
		b.Bases = append(b.Bases, r.base(list))
	}
	r.body = b
	return r
}

// ReadRebase decodes OpRebase.
func ReadRebase(m Message, files []*os.File) (bases [][]extent.Extent, err error) {
	var b rebaseBody
	a := arrive(m, files, &b)
	for _, n := range b.Bases {
		bases = append(bases, a.base(n))
	}
	return bases, a.end()
}

// workingSetBody is the body of OpWriteWorkingSet, OpPopulate and OpPopulateShell.
type workingSetBody struct {
	File fileRef `json:"file"`
}

// WriteWorkingSet returns an OpWriteWorkingSet request.
func WriteWorkingSet(f *os.File) *Request { return workingSet(OpWriteWorkingSet, f, Write) }

// Populate returns an OpPopulate request.
func Populate(f *os.File) *Request { return workingSet(OpPopulate, f, Read) }

// PopulateShell returns an OpPopulateShell request.
func PopulateShell(f *os.File) *Request { return workingSet(OpPopulateShell, f, Read) }

func workingSet(op string, f *os.File, a Access) *Request {
	r := Ask(op)
	r.body = workingSetBody{r.file(f, a)}
	return r
}

// ReadWorkingSet decodes OpWriteWorkingSet, OpPopulate or OpPopulateShell.
func ReadWorkingSet(m Message, files []*os.File) (*os.File, error) {
	var b workingSetBody
	a := arrive(m, files, &b)
	f := a.file(b.File)
	return f, a.end()
}

type netBody struct {
	File fileRef `json:"file"`
}

// Net returns an OpNet request.
func Net(f *os.File) *Request {
	r := Ask(OpNet)
	r.body = netBody{r.file(f, AsIs)}
	return r
}

// ReadNet decodes OpNet.
func ReadNet(m Message, files []*os.File) (*os.File, error) {
	var b netBody
	a := arrive(m, files, &b)
	f := a.file(b.File)
	return f, a.end()
}

type netOpenBody struct {
	File fileRef `json:"file,omitempty"`
}

// NetOpen returns an OpNetOpen request. The file may be nil.
func NetOpen(f *os.File) *Request {
	r := Ask(OpNetOpen)
	if f != nil {
		r.body = netOpenBody{r.file(f, AsIs)}
	}
	return r
}

// ReadNetOpen decodes OpNetOpen. Its body is optional.
func ReadNetOpen(m Message, files []*os.File) (*os.File, error) {
	if len(m.Body) == 0 {
		unixfd.CloseAll(files)
		return nil, nil
	}
	var b netOpenBody
	a := arrive(m, files, &b)
	f := a.optional(b.File)
	return f, a.end()
}

type plugBody struct {
	Volumes []diskBody `json:"volumes"`
}

// Plug returns an OpPlug request.
func Plug(volumes []vmm.Disk) *Request {
	r := Ask(OpPlug)
	r.body = plugBody{r.disks(volumes)}
	return r
}

// ReadPlug decodes OpPlug.
func ReadPlug(m Message, files []*os.File) (volumes []vmm.Disk, err error) {
	var b plugBody
	a := arrive(m, files, &b)
	volumes = a.disks(b.Volumes)
	return volumes, a.end()
}
