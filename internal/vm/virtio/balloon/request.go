package balloon

import "github.com/forkd/forkd/internal/vm/virtio"

// pageSize is the page size of the host and of the balloon (virtio 1.2 §5.5.6).
const pageSize = 4096

// wholePages returns the whole pages of a range, from at to before end. If there are none, at is
// not below end. Partial pages at the ends are not entirely free.
func wholePages(r virtio.Range) (at, end virtio.GPA) {
	return (r.GPA + pageSize - 1) &^ (pageSize - 1), (r.GPA + virtio.GPA(r.Bytes)) &^ (pageSize - 1)
}
