//! The tiles of AMX: registers of 16 rows of 64 bytes, and instructions that multiply two of them and add the product to a third.
//!
//! A tile of rows has 16 rows of 64 bytes, and one of columns 16 lines of 16 columns: a line has as many depths of each column as fit 4 bytes. So one
//! instruction computes the sums of 16 rows and 16 columns over 64 bytes of depths. It takes 16 cycles.
//!
//! Rust has no functions for these instructions that are stable, so they are assembly here.

mod bytes;
mod pairs;

pub(super) use bytes::multiply as multiply_bytes;
pub(super) use pairs::multiply as multiply_pairs;

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::LazyLock;

/// The rows of a tile, and the columns of its sums.
const SIDE: usize = 16;
/// The bytes of a row of a tile.
const ROW_BYTES: usize = 64;
/// The tiles of rows, and of columns, of a block: with both sides of a group of depths, its sums fill the registers.
const TILES: usize = 2;
/// The rows, and the columns, of a block.
pub(super) const BLOCK: usize = TILES * SIDE;

/// Whether the machine has tiles, and the system lets this process use them.
pub(super) fn is_available() -> bool {
    static IS_AVAILABLE: LazyLock<bool> =
        LazyLock::new(|| has_instructions() && system::permits_tiles());
    *IS_AVAILABLE
}

/// AMX-TILE, AMX-INT8 and AMX-BF16.
fn has_instructions() -> bool {
    const FEATURES: u32 = 1 << 24 | 1 << 25 | 1 << 22;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & FEATURES == FEATURES
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::c_long;

    /// `SYS_arch_prctl` of `<sys/syscall.h>`.
    const ARCH_PRCTL: c_long = 158;
    /// `ARCH_REQ_XCOMP_PERM` of `<asm/prctl.h>`.
    const REQUEST_PERMISSION: c_long = 0x1023;
    /// The state component of the tiles' data.
    const TILE_DATA: c_long = 18;

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    /// Asks for the permission, which is that of all threads of the process. The system saves larger registers for them from then on.
    pub(super) fn permits_tiles() -> bool {
        // SAFETY: the request has no other effect than the permission. A system that does not know it returns an error.
        unsafe { syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn permits_tiles() -> bool {
        false
    }
}

/// The operand of `ldtilecfg`: the shape of each tile.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// The rows of the tiles of a block of so many rows.
fn rows_of_tiles(rows: usize) -> [usize; TILES] {
    [rows.min(SIDE), rows.saturating_sub(SIDE)]
}

/// An instruction that multiplies tiles.
trait Dot {
    /// A sum.
    type Sum: Copy + Default;

    /// Adds the products of groups of depths to the sums in the tiles.
    ///
    /// # Safety
    /// The conditions are those of [`Tiles::multiply`]. There is at least one group.
    unsafe fn add(tiles: [usize; 2], sides: Sides, groups: usize);
}

/// Both sides of a block in memory. A group of depths is 64 bytes of each row, and 16 lines of columns.
#[derive(Clone, Copy)]
struct Sides {
    /// The first row.
    rows: *const u8,
    /// The bytes from a row to the next one.
    row_stride: usize,
    /// The first line of the columns of each tile.
    columns: [*const u8; TILES],
    /// The bytes from a line to the next one.
    line_stride: usize,
    /// The lines of all depths.
    lines: usize,
}

/// The sums of a block.
#[repr(align(64))]
struct Sums<T>([[T; BLOCK]; BLOCK]);

impl<T: Copy + Default> Sums<T> {
    fn new() -> Self {
        Self([[T::default(); BLOCK]; BLOCK])
    }

    /// Their memory, with the distance between rows.
    fn memory(&mut self) -> (*mut T, usize) {
        (self.0.as_mut_ptr().cast(), BLOCK)
    }
}

/// A group of depths of both sides, with zeros behind the last depth.
#[repr(align(64))]
struct Group {
    rows: [[u8; ROW_BYTES]; BLOCK],
    columns: [[[u8; ROW_BYTES]; SIDE]; TILES],
}

impl Group {
    /// Copies so many rows and tiles of columns.
    ///
    /// # Safety
    /// The conditions are those of [`Tiles::multiply`].
    unsafe fn copy(sides: Sides, rows: usize, columns: usize) -> Self {
        let mut group = Self {
            rows: [[0; _]; _],
            columns: [[[0; _]; _]; _],
        };
        // SAFETY: the caller's: each row has 4 bytes for each line, and each line 64.
        unsafe {
            for (row, to) in group.rows[..rows].iter_mut().enumerate() {
                let from = sides.rows.add(row * sides.row_stride);
                from.copy_to_nonoverlapping(to.as_mut_ptr(), 4 * sides.lines);
            }
            for (to, from) in group.columns[..columns].iter_mut().zip(sides.columns) {
                for (line, to) in to[..sides.lines].iter_mut().enumerate() {
                    let from = from.add(line * sides.line_stride);
                    from.copy_to_nonoverlapping(to.as_mut_ptr(), ROW_BYTES);
                }
            }
        }
        group
    }

    fn sides(&self) -> Sides {
        Sides {
            rows: self.rows.as_ptr().cast(),
            row_stride: ROW_BYTES,
            columns: [0, 1].map(|tile| self.columns[tile].as_ptr().cast()),
            line_stride: ROW_BYTES,
            lines: SIDE,
        }
    }
}

/// The tile registers of this thread, while they have shapes: `tmm0` to `tmm3` are the sums of a block, `tmm4` and `tmm5` its rows, `tmm6` and `tmm7` its
/// columns. Nothing that the compiler generates uses them, so they keep what they hold from one piece of assembly to the next.
struct Tiles {
    /// The rows of a block.
    rows: usize,
    /// Registers are those of a thread.
    of_thread: PhantomData<*const ()>,
}

impl Tiles {
    /// Tiles for blocks of so many rows, 1 to [`BLOCK`].
    ///
    /// # Safety
    /// Tiles are [available](is_available), and this thread has no others.
    unsafe fn of_rows(rows: usize) -> Self {
        let [first, second] = rows_of_tiles(rows);
        // Four tiles of sums, two of rows, two of columns.
        let rows_of = [first, first, second, second, first, second, SIDE, SIDE];
        let mut shapes = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; _],
            row_bytes: [0; _],
            rows: [0; _],
        };
        for (tile, rows) in rows_of
            .into_iter()
            .enumerate()
            .filter(|(_, rows)| *rows > 0)
        {
            shapes.rows[tile] = rows as u8;
            shapes.row_bytes[tile] = ROW_BYTES as u16;
        }
        // SAFETY: the shapes are those of palette 1: tiles of at most 16 rows of 64 bytes, or none.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, readonly, preserves_flags))
        };
        Self {
            rows,
            of_thread: PhantomData,
        }
    }

    /// Writes the sums of a block of all rows and so many tiles of columns, 1 or 2, to rows that are `stride` apart.
    ///
    /// # Safety
    /// At each place that `sides` names there are such numbers: `lines` times 4 bytes of each row, and 64 bytes of each line. There is memory for the sums.
    #[inline(always)]
    unsafe fn multiply<D: Dot>(
        &mut self,
        sides: Sides,
        columns: usize,
        (to, stride): (*mut D::Sum, usize),
    ) {
        const { assert!(size_of::<D::Sum>() == 4) };
        let tiles = [self.rows.div_ceil(SIDE), columns];
        let (groups, rest) = (sides.lines / SIDE, sides.lines % SIDE);
        // SAFETY: the tiles have the shapes of the block, and the caller's.
        unsafe {
            zero(tiles);
            if groups > 0 {
                D::add(tiles, sides, groups);
            }
            if rest > 0 {
                let behind = Sides {
                    rows: sides.rows.add(groups * ROW_BYTES),
                    columns: sides
                        .columns
                        .map(|of| of.wrapping_add(groups * SIDE * sides.line_stride)),
                    lines: rest,
                    ..sides
                };
                let group = Group::copy(behind, self.rows, columns);
                D::add(tiles, group.sides(), 1);
            }
            store(tiles, to.cast(), stride);
        }
    }
}

impl Drop for Tiles {
    /// Returns the registers to the state that the system need not save.
    fn drop(&mut self) {
        // SAFETY: the registers have shapes, so the machine has the instruction.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// Sets the sums of so many tiles of rows and columns to 0.
///
/// # Safety
/// The tiles have shapes.
#[inline(always)]
unsafe fn zero([rows, columns]: [usize; 2]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("tilezero tmm0", options(nomem, nostack, preserves_flags));
        if columns > 1 {
            asm!("tilezero tmm1", options(nomem, nostack, preserves_flags));
        }
        if rows > 1 {
            asm!(
                "tilezero tmm2",
                "tilezero tmm3",
                options(nomem, nostack, preserves_flags)
            );
        }
    }
}

/// Writes the sums of so many tiles of rows and columns to rows that are `stride` apart.
///
/// # Safety
/// The tiles have shapes, and there is memory for the sums.
#[inline(always)]
unsafe fn store([rows, columns]: [usize; 2], to: *mut u32, stride: usize) {
    macro_rules! store {
        ($tile:literal, $row:expr, $column:expr) => {
            asm!(
                concat!("tilestored [{to} + {stride}], ", $tile),
                to = in(reg) to.add($row * stride + $column),
                stride = in(reg) 4 * stride,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: the caller's.
    unsafe {
        store!("tmm0", 0, 0);
        if columns > 1 {
            store!("tmm1", 0, SIDE);
        }
        if rows > 1 {
            store!("tmm2", SIDE, 0);
        }
        if rows > 1 && columns > 1 {
            store!("tmm3", SIDE, SIDE);
        }
    }
}

/// Runs some instructions for each group of depths.
macro_rules! for_each_group {
    ($sides:ident, $groups:ident, $($instruction:expr),+) => {
        asm!(
            "2:",
            $($instruction,)+
            "add {rows}, 64",
            "add {behind}, 64",
            "add {first}, {step}",
            "add {second}, {step}",
            "dec {groups}",
            "jnz 2b",
            rows = inout(reg) $sides.rows => _,
            behind = inout(reg) $sides.rows.wrapping_add(SIDE * $sides.row_stride) => _,
            row_stride = in(reg) $sides.row_stride,
            first = inout(reg) $sides.columns[0] => _,
            second = inout(reg) $sides.columns[1] => _,
            line_stride = in(reg) $sides.line_stride,
            step = in(reg) SIDE * $sides.line_stride,
            groups = inout(reg) $groups => _,
            options(nostack, readonly),
        )
    };
}

macro_rules! dot {
    ($(#[$doc:meta])* $name:ident: $sum:ty, $dot:literal) => {
        $(#[$doc])*
        struct $name;

        impl Dot for $name {
            type Sum = $sum;

            #[inline(always)]
            unsafe fn add(tiles: [usize; 2], sides: Sides, groups: usize) {
                // SAFETY: the caller's.
                unsafe {
                    match tiles {
                        [1, 1] => for_each_group!(
                            sides, groups,
                            "tileloadd tmm4, [{rows} + {row_stride}]",
                            "tileloadd tmm6, [{first} + {line_stride}]",
                            concat!($dot, " tmm0, tmm4, tmm6")
                        ),
                        [1, _] => for_each_group!(
                            sides, groups,
                            "tileloadd tmm4, [{rows} + {row_stride}]",
                            "tileloadd tmm6, [{first} + {line_stride}]",
                            concat!($dot, " tmm0, tmm4, tmm6"),
                            "tileloadd tmm7, [{second} + {line_stride}]",
                            concat!($dot, " tmm1, tmm4, tmm7")
                        ),
                        [_, 1] => for_each_group!(
                            sides, groups,
                            "tileloadd tmm4, [{rows} + {row_stride}]",
                            "tileloadd tmm6, [{first} + {line_stride}]",
                            concat!($dot, " tmm0, tmm4, tmm6"),
                            "tileloadd tmm5, [{behind} + {row_stride}]",
                            concat!($dot, " tmm2, tmm5, tmm6")
                        ),
                        _ => for_each_group!(
                            sides, groups,
                            "tileloadd tmm4, [{rows} + {row_stride}]",
                            "tileloadd tmm6, [{first} + {line_stride}]",
                            concat!($dot, " tmm0, tmm4, tmm6"),
                            "tileloadd tmm7, [{second} + {line_stride}]",
                            concat!($dot, " tmm1, tmm4, tmm7"),
                            "tileloadd tmm5, [{behind} + {row_stride}]",
                            concat!($dot, " tmm2, tmm5, tmm6"),
                            concat!($dot, " tmm3, tmm5, tmm7")
                        ),
                    }
                }
            }
        }
    };
}

dot! {
    /// The sums of pairs of numbers in bf16: those of the first numbers of the 16 pairs of a group, and those of the second ones, each step rounded once, then
    /// their sum, which is added to the sum of the groups before. A subnormal sum becomes 0.
    DotPairs: f32, "tdpbf16ps"
}

dot! {
    /// The sums of products of four signed bytes with four unsigned ones.
    DotBytes: i32, "tdpbsud"
}
