// Package extent says where parts of an image are. An image is guest memory in
// linear order, or a disk. A Run is a part of it; an Extent is a run and the range of
// a file that holds its content; a PageSet is any set of pages, a bit each. The
// package has the types and their arithmetic: join, split, clip, put over one another.
// It touches no memory and no image; but for a page set's, file formats belong to other
// packages. The trap: in a list, an extent without a file is zeros that hide what lies
// below, and a gap is nothing at all. Only over nothing do the two look alike.
package extent
