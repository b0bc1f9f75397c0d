package balloon

import "github.com/forkd/forkd/internal/vm/virtio"

// pageSize is that of the host and of the balloon (virtio 1.2 §5.5.6).
const pageSize = 4096

// wholePages is the part of a range that is whole pages, from at on and before end; at is not below
// end if there is none. What lies on a page beside it is not free.
func wholePages(r virtio.Range) (at, end virtio.GPA) {
	return (r.GPA + pageSize - 1) &^ (pageSize - 1), (r.GPA + virtio.GPA(r.Bytes)) &^ (pageSize - 1)
}
