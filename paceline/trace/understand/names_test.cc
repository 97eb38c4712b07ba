#include "paceline/trace/understand/names.h"

#include <gtest/gtest.h>

#include <string>

namespace paceline::trace {
namespace {

struct Known {
  const char* name;
  CollectiveKind kind;
};

TEST(KernelNames, OfEveryGenerationOfNcclAreCollectives) {
  // NCCL 2.4 to 2.29 as they stand in recorded traces and in the sources of NCCL and RCCL.
  for (const Known& known : {
           Known{"ncclAllReduceRingLLKernel_sum_f32(ncclColl)", CollectiveKind::kAllReduce},
           Known{"ncclBroadcastRingLLKernel_copy_i8(ncclColl)", CollectiveKind::kBroadcast},
           Known{"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", CollectiveKind::kAllReduce},
           Known{"ncclKernel_AllReduce_TREE_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)",
                 CollectiveKind::kAllReduce},
           Known{"ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)", CollectiveKind::kReduceScatter},
           Known{"ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", CollectiveKind::kAllGather},
           Known{"ncclKernel_Reduce_RING_LL_Sum_float(ncclWorkElem)", CollectiveKind::kReduce},
           Known{"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
                 CollectiveKind::kSendRecv},
           Known{"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                 CollectiveKind::kAllReduce},
           Known{"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
                 CollectiveKind::kReduceScatter},
           Known{"ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", CollectiveKind::kAllGather},
           Known{"ncclDevKernel_Broadcast_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", CollectiveKind::kBroadcast},
           Known{"ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)", CollectiveKind::kSendRecv},
           Known{"nccldevkernel_allreduce_sum_f32_ring_ll", CollectiveKind::kAllReduce},
           Known{"ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32(ncclSymkDevWorkArgs4K)", CollectiveKind::kAllReduce},
           Known{"void ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", CollectiveKind::kAllReduce},
           Known{"ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)", CollectiveKind::kUnknown},
           Known{"ncclDevKernel_Generic_1(ncclDevComm*, channelMasks, ncclWork*)", CollectiveKind::kUnknown},
           Known{"rccl_main_kernel", CollectiveKind::kUnknown},
           Known{"mscclKernel_Sum_float_Simple_false(ncclDevComm*, mscclAlgo*)", CollectiveKind::kUnknown},
       }) {
    EXPECT_EQ(kind_of_kernel(known.name), known.kind) << known.name;
  }
}

TEST(KernelNames, OfOtherLibrariesAreCollectivesToo) {
  EXPECT_EQ(kind_of_kernel("void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*, int)"),
            CollectiveKind::kAllReduce);
  EXPECT_EQ(
      kind_of_kernel("void c10d::symmetric_memory::(anonymous namespace)::two_shot_all_reduce_kernel<float>(float*)"),
      CollectiveKind::kAllReduce);
  EXPECT_EQ(kind_of_kernel("void (anonymous namespace)::multimem_all_gather_kernel<4>(char*)"),
            CollectiveKind::kAllGather);
}

TEST(KernelNames, OfExpertParallelismAndOneSidedTransfers) {
  for (const Known& known : {
           // DeepEP csrc/kernels: intranode.cu, internode.cu, internode_ll.cu.
           Known{"void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)", CollectiveKind::kAllToAll},
           Known{"void deep_ep::internode_ll::combine<true, 7168, 9>(void*)", CollectiveKind::kAllToAll},
           Known{"void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int)", CollectiveKind::kAllToAll},
           Known{"void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", CollectiveKind::kNone},
           Known{"nvshmemi_alltoall_on_stream_kernel", CollectiveKind::kAllToAll},
           Known{"nvshmemi_proxy_quiet", CollectiveKind::kUnknown},
           Known{"void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(Params)",
                 CollectiveKind::kAllReduce},
           Known{"void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>(RankData*)", CollectiveKind::kAllReduce},
           Known{"void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)", CollectiveKind::kReduceScatter},
           Known{"kuserbuffers_pushsend(int*, int*)", CollectiveKind::kSendRecv},
           Known{"ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)", CollectiveKind::kAllGather},
           Known{"ncclSymDevKernel_ReduceScatter_LD_sum_bf16(ncclSymDevArgs)", CollectiveKind::kReduceScatter},
       }) {
    EXPECT_EQ(kind_of_kernel(known.name), known.kind) << known.name;
  }
}

TEST(SpanNames, OfEveryBackendAreCommunication) {
  for (const char* name : {"nccl:all_reduce", "nccl2:all_reduce", "gloo:broadcast", "c10d::allreduce_",
                           "_c10d_functional::all_gather_into_tensor"}) {
    EXPECT_TRUE(is_communication_span(name)) << name;
    EXPECT_NE(kind_of_span(name), CollectiveKind::kNone) << name;
  }
  EXPECT_FALSE(is_communication_span("aten::add"));
  EXPECT_FALSE(is_communication_span("FSDP::all_gather (layers.0)"));
}

TEST(KernelNames, OfComputationAreNoCollectives) {
  for (const char* name :
       {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4>(int)", "ampere_sgemm_128x64_tn",
        "splitKreduce_kernel", "Memcpy DtoD (Device -> Device)", "", "(", "(anonymous namespace)::"}) {
    EXPECT_EQ(kind_of_kernel(name), CollectiveKind::kNone) << name;
  }
}

TEST(KernelNames, OfTheLibrariesThatModelsAreMadeOfAreComputation) {
  for (const char* name :
       {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128> >(Flash_fwd_params)", "triton_poi_fused_add_0",
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(Params)"}) {
    EXPECT_TRUE(is_known_computation(name)) << name;
    EXPECT_EQ(kind_of_kernel(name), CollectiveKind::kNone) << name;
  }
  EXPECT_FALSE(is_known_computation("void acme::fast_ring_exchange<4>(char*)"));
  EXPECT_FALSE(is_known_computation(""));
}

TEST(SpanNames, OfTheHostsOwnCollectives) {
  EXPECT_TRUE(is_host_collective("gloo:all_reduce"));
  EXPECT_TRUE(is_host_collective("mpi:broadcast"));
  EXPECT_FALSE(is_host_collective("nccl:all_reduce"));
  EXPECT_FALSE(is_host_collective("aten::mm"));
}

TEST(SpanNames, OfEveryGenerationTellTheKind) {
  for (const Known& known : {
           Known{"nccl:all_reduce", CollectiveKind::kAllReduce},
           Known{"nccl:_all_gather_base", CollectiveKind::kAllGather},
           Known{"nccl:_reduce_scatter_base", CollectiveKind::kReduceScatter},
           Known{"nccl:reduce_scatter_tensor_coalesced", CollectiveKind::kReduceScatter},
           Known{"nccl:all_to_all", CollectiveKind::kAllToAll},
           Known{"nccl:send 0->1", CollectiveKind::kSendRecv},
           Known{"nccl:recv 0<-1", CollectiveKind::kSendRecv},
           Known{"nccl:coalesced", CollectiveKind::kUnknown},
           Known{"gloo:all_reduce", CollectiveKind::kAllReduce},
           Known{"gloo:broadcast", CollectiveKind::kBroadcast},
           Known{"gloo:barrier", CollectiveKind::kBarrier},
           Known{"gloo:gather", CollectiveKind::kGather},
           Known{"gloo:scatter", CollectiveKind::kScatter},
           Known{"gloo:reduce", CollectiveKind::kReduce},
           Known{"c10d::allreduce_", CollectiveKind::kAllReduce},
           Known{"c10d::alltoall_base_", CollectiveKind::kAllToAll},
           Known{"c10d::_allgather_base_", CollectiveKind::kAllGather},
           Known{"allreduce_coalesced", CollectiveKind::kAllReduce},
           Known{"_reduce_scatter_base", CollectiveKind::kReduceScatter},
           Known{"all_to_allv", CollectiveKind::kAllToAll},
           Known{"wait", CollectiveKind::kNone},
       }) {
    EXPECT_EQ(kind_of_span(known.name), known.kind) << known.name;
  }
}

TEST(CollectiveNames, AreTheFrameworksOwn) {
  EXPECT_EQ(collective_name(CollectiveKind::kAllReduce), "all_reduce");
  EXPECT_EQ(collective_name(CollectiveKind::kSendRecv), "send_recv");
  for (int kind = 0; kind <= static_cast<int>(CollectiveKind::kNone); ++kind) {
    EXPECT_FALSE(collective_name(static_cast<CollectiveKind>(kind)).empty());
  }
}

}  // namespace
}  // namespace paceline::trace
