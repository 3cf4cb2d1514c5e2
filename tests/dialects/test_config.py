from __future__ import annotations

from typing import Any

import pytest
import yaml

from subak.dialects.config import Config, unknown
from subak.dialects.interpreter import Interpreter
from subak.model.device import MIB
from subak.model.request import Claim
from tests.dialects.manifests import Limits, pod

# The device-config.yaml of HAMi's chart, with the names of an imaginary company; sections that we do not speak for too.
CHART = """
nvidia:
  resourceCountName: acme.com/gpu
  resourceMemoryName: acme.com/gpumem
  resourceMemoryPercentageName: acme.com/gpumem-percentage
  resourceCoreName: acme.com/gpucores
  resourcePriorityName: acme.com/priority
  overwriteEnv: false
  defaultMemory: 2000
  defaultCores: 10
  defaultGPUNum: 2
  memoryFactor: 4
  deviceSplitCount: 5
  deviceMemoryScaling: 1.5
  deviceCoreScaling: 1
  preConfiguredDeviceMemory: 0
  libCudaLogLevel: 1
  gpuCorePolicy: force
  disableCoreLimit: false
  runtimeClassName: ""
  migProfileAllowlist:
    - models: ["A30"]
      profiles: ["1g.6gb", "2g.12gb"]
cambricon:
  resourceCountName: cambricon.com/vmlu
hygon:
  resourceCountName: hygon.com/dcunum
  memoryFactor: 1
metax:
  resourceCountName: acme.com/metax
  resourceVCountName: acme.com/sgpu
  resourceVMemoryName: acme.com/vmemory
  resourceVCoreName: acme.com/vcore
  sgpuTopologyAware: true
enflame:
mthreads:
  resourceCountName: acme.com/mt
  resourceMemoryName: acme.com/mtmem
  resourceCoreName: acme.com/mtcore
  memoryPerCard: [48, 96]
iluvatars:
- chipName: BI-V150
  commonWord: BI-V150
  resourceCountName: acme.com/bi
  resourceMemoryName: acme.com/bi.mem
  resourceCoreName: acme.com/bi.core
vnpus:
- chipName: 910B
  commonWord: Ascend910A
  resourceName: huawei.com/Ascend910A
  memoryAllocatable: 32768
"""


# What the chart writes when nobody changes a value, and the sections of ours.
DEFAULTS = """
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceMemoryPercentageName: nvidia.com/gpumem-percentage
  resourceCoreName: nvidia.com/gpucores
  resourcePriorityName: nvidia.com/priority
  defaultMemory: 0
  defaultCores: 0
  defaultGPUNum: 1
  memoryFactor: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1
  deviceCoreScaling: 1
  gpuCorePolicy: default
  disableCoreLimit: false
metax:
  resourceCountName: metax-tech.com/gpu
  resourceVCountName: metax-tech.com/sgpu
  resourceVMemoryName: metax-tech.com/vmemory
  resourceVCoreName: metax-tech.com/vcore
  sgpuTopologyAware: false
mthreads:
  resourceCountName: mthreads.com/vgpu
  resourceMemoryName: mthreads.com/sgpu-memory
  resourceCoreName: mthreads.com/sgpu-core
  memoryPerCard: [96]
iluvatar:
  resourceCountName: iluvatar.ai/vgpu
  resourceMemoryName: iluvatar.ai/vcuda-memory
  resourceCoreName: iluvatar.ai/vcuda-core
volcano:
  gpuMemoryFactor: 1
koordinator:
  scoringStrategy: LeastAllocated
"""


def config(text: str) -> Config:
    return Config.of(yaml.safe_load(text))


def claims(interpreter: Interpreter, limits: Limits) -> tuple[Claim, ...]:
    return interpreter.request(interpreter.admit(pod(limits))).claims


class TestChart:
    def test_every_value_is_taken_over(self) -> None:
        read = config(CHART)
        nvidia, metax, mthreads = read.nvidia, read.metax, read.mthreads
        assert (nvidia.resource_count_name, nvidia.resource_memory_name) == ("acme.com/gpu", "acme.com/gpumem")
        assert nvidia.resource_memory_percentage_name == "acme.com/gpumem-percentage"
        assert (nvidia.resource_core_name, nvidia.resource_priority_name) == ("acme.com/gpucores", "acme.com/priority")
        assert (nvidia.default_memory, nvidia.default_cores, nvidia.default_gpu_num) == (2000, 10, 2)
        assert (nvidia.memory_factor, nvidia.device_split_count, nvidia.device_memory_scaling) == (4, 5, 1.5)
        assert (nvidia.gpu_core_policy, nvidia.disable_core_limit) == ("force", False)
        assert (metax.resource_count_name, metax.resource_v_count_name) == ("acme.com/metax", "acme.com/sgpu")
        assert (metax.resource_v_memory_name, metax.resource_v_core_name) == ("acme.com/vmemory", "acme.com/vcore")
        assert metax.sgpu_topology_aware
        assert (mthreads.resource_count_name, mthreads.memory_per_card) == ("acme.com/mt", (48, 96))
        assert [chip.common_word for chip in read.iluvatars] == ["BI-V150"]
        assert read.iluvatars[0].resource_memory_name == "acme.com/bi.mem"

    def test_pods_ask_in_the_new_names(self) -> None:
        interpreter = Interpreter(config(CHART))
        (claim,) = claims(interpreter, {"acme.com/gpumem": 100})
        assert (claim.dialect, claim.count, claim.memory_bytes, claim.cores) == ("hami-nvidia", 2, 400 * MIB, 10)
        dialects = {
            "acme.com/metax": "hami-metax-gpu",
            "acme.com/sgpu": "hami-metax-sgpu",
            "acme.com/mt": "hami-mthreads",
            "acme.com/bi": "hami-iluvatar-BI-V150",
        }
        for resource, dialect in dialects.items():
            (claim,) = claims(interpreter, {resource: 1})
            assert claim.dialect == dialect

    def test_the_usual_names_mean_nothing_then(self) -> None:
        interpreter = Interpreter(config(CHART))
        asking = pod({"nvidia.com/gpumem": 100, "iluvatar.ai/MR-V100-vgpu": 1})
        assert not interpreter.speaking(asking)
        assert dict(interpreter.request(asking).needs.resources)["nvidia.com/gpumem"] == 100

    def test_the_older_chart_has_one_section_for_all_iluvatar_models(self) -> None:
        names = (
            "{resourceCountName: acme.com/ix, resourceMemoryName: acme.com/ixmem, resourceCoreName: acme.com/ixcore}"
        )
        (claim,) = claims(Interpreter(config(f"iluvatar: {names}")), {"acme.com/ix": 1, "acme.com/ixmem": 2})
        assert (claim.dialect, claim.memory_bytes) == ("hami-iluvatar", 512 * MIB)

    def test_sections_of_ours(self) -> None:
        read = config("{volcano: {gpuMemoryFactor: 256}, koordinator: {scoringStrategy: MostAllocated}}")
        interpreter = Interpreter(read)
        (claim,) = claims(interpreter, {"volcano.sh/gpu-memory": 2})
        assert claim.memory_bytes == 512 * MIB
        asking = interpreter.admit(pod({"koordinator.sh/gpu": 100}))
        assert interpreter.request(asking).node_policy == "MostAllocated"


class TestDefaults:
    @pytest.mark.parametrize("text", ["", "{}", "nvidia: {}", "nvidia:", "biren: {resourceCountName: x}"])
    def test_what_is_not_said_is_as_in_hami(self, text: str) -> None:
        assert config(text) == Config()

    def test_the_defaults_are_those_of_the_chart(self) -> None:
        assert config(DEFAULTS) == Config()

    def test_one_value_changes_no_other(self) -> None:
        read = config("nvidia: {defaultCores: 5}")
        assert read.nvidia.default_cores == 5
        assert read.nvidia.resource_count_name == "nvidia.com/gpu"
        assert read.metax == Config().metax

    def test_hamis_four_iluvatar_models_are_known(self) -> None:
        words = ("MR-V100", "MR-V50", "BI-V150", "BI-V100")
        chips = Config().iluvatars
        assert [chip.resource_count_name for chip in chips] == [f"iluvatar.ai/{word}-vgpu" for word in words]
        assert [chip.resource_memory_name for chip in chips] == [f"iluvatar.ai/{word}.vMem" for word in words]
        assert [chip.resource_core_name for chip in chips] == [f"iluvatar.ai/{word}.vCore" for word in words]


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "complaint", "path"),
        [
            ("nvidia: {defaultMemory: lots}", "Expected `int`, got `str`", "$.nvidia.defaultMemory"),
            ("nvidia: {defaultMemory: 1.5}", "Expected `int`, got `float`", "$.nvidia.defaultMemory"),
            ("nvidia: {defaultMemory: -1}", "Expected `int` >= 0", "$.nvidia.defaultMemory"),
            ("nvidia: {memoryFactor: 0}", "Expected `int` >= 1", "$.nvidia.memoryFactor"),
            ("nvidia: {defaultGPUNum: 0}", "Expected `int` >= 1", "$.nvidia.defaultGPUNum"),
            ("nvidia: {disableCoreLimit: maybe}", "Expected `bool`, got `str`", "$.nvidia.disableCoreLimit"),
            ("nvidia: {resourceCountName: 5}", "Expected `str`, got `int`", "$.nvidia.resourceCountName"),
            ("nvidia: [1]", "Expected `object`, got `array`", "$.nvidia"),
            ("mthreads: {memoryPerCard: []}", "length >= 1", "$.mthreads.memoryPerCard"),
            ("mthreads: {memoryPerCard: [96, 0]}", "Expected `int` >= 1", "$.mthreads.memoryPerCard[1]"),
            ("iluvatars: [{chipName: x}]", "missing required field `commonWord`", "$.iluvatars[0]"),
            ("iluvatars: {chipName: x}", "Expected `array`, got `object`", "$.iluvatars"),
            ("volcano: {gpuMemoryFactor: 0}", "Expected `int` >= 1", "$.volcano.gpuMemoryFactor"),
        ],
    )
    def test_a_wrong_value_is_named_by_its_key(self, text: str, complaint: str, path: str) -> None:
        with pytest.raises(ValueError, match="device-config: ") as caught:
            config(text)
        assert complaint in str(caught.value)
        assert f"at `{path}`" in str(caught.value)

    @pytest.mark.parametrize("content", [[], "nvidia", 5, False, ["nvidia"]])
    def test_a_file_that_is_no_table_is_refused(self, content: Any) -> None:
        with pytest.raises(ValueError, match="device-config: Expected `object`"):
            Config.of(content)

    def test_a_strategy_that_koordinator_does_not_have_is_refused(self) -> None:
        with pytest.raises(
            ValueError, match="koordinator.scoringStrategy is 'Best': use LeastAllocated or MostAllocated"
        ):
            Interpreter(config("koordinator: {scoringStrategy: Best}"))


class TestTypingErrors:
    @pytest.mark.parametrize("text", [CHART, DEFAULTS, "", "nvidia:", "- a list"])
    def test_a_file_without_any_is_not_complained_about(self, text: str) -> None:
        assert unknown(yaml.safe_load(text)) == []

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("nvida: {}", "section nvida is unknown and has no effect; did you mean nvidia?"),
            ("NVIDIA: {}", "section NVIDIA is unknown and has no effect; did you mean nvidia?"),
            ("cambricom: {}", "section cambricom is unknown and has no effect; did you mean cambricon?"),
            (
                "nvidia: {resourceCountNam: x}",
                "key nvidia.resourceCountNam is unknown and has no effect; did you mean resourceCountName?",
            ),
            (
                "iluvatars: [{commonword: x}]",
                "key iluvatars.commonword is unknown and has no effect; did you mean commonWord?",
            ),
            ("volcano: {zzz: 1}", "key volcano.zzz is unknown and has no effect; known are gpuMemoryFactor"),
        ],
    )
    def test_each_is_told_with_the_nearest_name(self, text: str, sentence: str) -> None:
        assert unknown(yaml.safe_load(text)) == [f"device-config: {sentence}"]

    def test_more_cores_by_default_than_a_card_has_are_refused(self) -> None:
        with pytest.raises(ValueError, match="defaultCores"):
            config("nvidia: {defaultCores: 130}")
