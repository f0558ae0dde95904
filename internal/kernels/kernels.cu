// Small CUDA kernels for tests, examples and measurements.
// Compiled with: nvcc -ptx -arch=compute_75 -O3. Nothing here needs more
// than sm_50, so the .version and .target lines may be lowered by hand.

typedef unsigned long long u64;

// First element and step of a grid-stride loop.
#define GRID_FIRST ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define GRID_STEP ((u64)gridDim.x * blockDim.x)

// dst[i] = value
extern "C" __global__ void purecuda_fill(unsigned *dst, unsigned long long n, unsigned value)
{
    for (u64 i = GRID_FIRST; i < n; i += GRID_STEP)
        dst[i] = value;
}

// dst[i] = a[i] + b[i]
extern "C" __global__ void purecuda_add(float *dst, const float *a, const float *b, unsigned long long n)
{
    for (u64 i = GRID_FIRST; i < n; i += GRID_STEP)
        dst[i] = a[i] + b[i];
}

// Argument of purecuda_affine, passed by value: 32 bytes.
struct purecuda_affine_args {
    float *dst;
    const float *src;
    float scale;
    float offset;
    unsigned long long n;
};

// dst[i] = scale * src[i] + offset
extern "C" __global__ void purecuda_affine(struct purecuda_affine_args p)
{
    for (u64 i = GRID_FIRST; i < p.n; i += GRID_STEP)
        p.dst[i] = p.scale * p.src[i] + p.offset;
}

#define MM_TILE 64  // rows and columns of c per block
#define MM_STEP 16  // depth of one step along k
#define MM_PITCH 68 // row pitch of the a tile: fewer bank conflicts, 16-byte aligned

// c[m x n] = a[m x k] * b[k x n], all row-major.
// Block: 256 threads. Grid: (ceil(n/64), ceil(m/64)).
extern "C" __global__ void __launch_bounds__(256)
purecuda_matmul(float *c, const float *a, const float *b, unsigned m, unsigned n, unsigned k)
{
    __shared__ __align__(16) float as[MM_STEP][MM_PITCH]; // as[k][row]
    __shared__ __align__(16) float bs[MM_STEP][MM_TILE];  // bs[k][column]

    const unsigned t = threadIdx.x;
    const unsigned tx = t % 16, ty = t / 16;
    const u64 row0 = (u64)blockIdx.y * MM_TILE;
    const u64 col0 = (u64)blockIdx.x * MM_TILE;

    float acc[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            acc[i][j] = 0.0f;

    for (u64 k0 = 0; k0 < k; k0 += MM_STEP) {
        // Each thread loads 4 elements of each tile; outside is zero.
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            const unsigned e = t + i * 256;

            const unsigned ar = e / MM_STEP, ak = e % MM_STEP;
            float av = 0.0f;
            if (row0 + ar < m && k0 + ak < k)
                av = a[(row0 + ar) * k + k0 + ak];
            as[ak][ar] = av;

            const unsigned bk = e / MM_TILE, bc = e % MM_TILE;
            float bv = 0.0f;
            if (k0 + bk < k && col0 + bc < n)
                bv = b[(k0 + bk) * n + col0 + bc];
            bs[bk][bc] = bv;
        }
        __syncthreads();

#pragma unroll
        for (int kk = 0; kk < MM_STEP; kk++) {
            const float4 av = *(const float4 *)&as[kk][ty * 4];
            const float4 bv = *(const float4 *)&bs[kk][tx * 4];
            const float x[4] = {av.x, av.y, av.z, av.w};
            const float y[4] = {bv.x, bv.y, bv.z, bv.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u64 row = row0 + ty * 4 + i;
        if (row >= m)
            break;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u64 col = col0 + tx * 4 + j;
            if (col < n)
                c[row * n + col] = acc[i][j];
        }
    }
}

// Thread 0 of each block spins until ns nanoseconds have passed.
extern "C" __global__ void purecuda_spin(unsigned long long ns)
{
    if (threadIdx.x == 0) {
        u64 start, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
        do {
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        } while (now - start < ns);
    }
}

// Counts in *errors the elements of src that differ from want.
extern "C" __global__ void purecuda_check(const unsigned *src, unsigned long long n, unsigned want, unsigned *errors)
{
    for (u64 i = GRID_FIRST; i < n; i += GRID_STEP)
        if (src[i] != want)
            atomicAdd(errors, 1u);
}

// Fails: every later use of the context answers an error.
extern "C" __global__ void purecuda_trap()
{
    asm volatile("trap;");
}

// All blocks of a cooperative launch wait for one another.
// *counter must be 0 at the start; arrived has one element per block.
extern "C" __global__ void purecuda_rendezvous(unsigned *counter, unsigned *arrived)
{
    if (threadIdx.x == 0) {
        atomicAdd(counter, 1u);
        while (*(volatile unsigned *)counter < gridDim.x) {
        }
        arrived[blockIdx.x] = 1;
    }
    __syncthreads();
}

// Does nothing.
extern "C" __global__ void purecuda_empty()
{
}
