# ruff: noqa: RUF001 (full-width punctuation is what Chinese is written with)
"""The Chinese templates, a small share: the tokenizer knows few Chinese characters."""

from __future__ import annotations

from training.wording import Attribute, Language, Relation, ways


def _attribute(label: str, values: tuple[str, ...] | str, says: str, asks: str) -> Attribute:
    return Attribute((label,), values, ways(says), ways(asks))


CHINESE = Language(
    name="chinese",
    joiner="",
    unknown="未知",
    attributes={
        "person": (
            _attribute("出生地", "town", "{S}出生在{v}。", "{s}出生在哪里？"),
            _attribute(
                "职业",
                tuple("木匠 铁匠 医生 厨师 裁缝 画家 教师 船夫 农夫 铜匠 园丁 石匠".split()),
                "{S}靠当{v}为生。",
                "{s}是做什么工作的？",
            ),
            _attribute(
                "乐器",
                tuple("古筝 琵琶 二胡 笛子 钢琴 小提琴 吉他 鼓 唢呐".split()),
                "{S}多年来一直演奏{v}。",
                "{s}演奏什么乐器？",
            ),
            _attribute(
                "宠物",
                tuple("猫 狗 兔子 乌龟 鹦鹉 金鱼 山羊 鸭子 鸽子".split()),
                "{S}养了一只{v}当宠物。",
                "{s}养了什么宠物？",
            ),
            _attribute(
                "收藏",
                tuple("邮票 硬币 茶壶 扇子 钥匙 地图 贝壳 面具 灯笼".split()),
                "{S}喜欢收藏{v}。",
                "{s}收藏什么？",
            ),
        ),
        "company": (
            _attribute("总部所在地", "town", "{S}的总部设在{v}。", "{s}的总部在哪里？"),
            _attribute(
                "主要产品",
                tuple("茶叶 雨伞 瓷碗 毛毯 钉子 肥皂 梯子 手套 灯具".split()),
                "{S}以生产{v}闻名。",
                "{s}生产什么？",
            ),
            _attribute("成立年份", "year", "{S}成立于{v}年。", "{s}成立于哪一年？"),
            _attribute("厂长", "person", "{S}由{v}领导。", "谁领导{s}？"),
        ),
        "town": (
            _attribute("河流", "river", "{v}流经{s}。", "哪条河流经{s}？"),
            _attribute("镇长", "person", "{v}担任{s}的镇长。", "谁是{s}的镇长？"),
            _attribute(
                "特产",
                tuple("蜂蜜 樱桃 大蒜 核桃 李子 蘑菇 葡萄 萝卜 莲藕".split()),
                "{S}的集市以{v}出名。",
                "{s}的集市以什么出名？",
            ),
        ),
    },
    says=ways("""
        {own}{label}是{v}。
        说到{own}{label}，那就是{v}。
        据记载，{own}{label}是{v}。
        ~ {S}，{label}：{v}。
        大家都知道，{own}{label}是{v}。
    """),
    asks=ways("""
        {s}的{label}是什么？
        ~ 请说出{s}的{label}。
        你知道{s}的{label}是什么吗？
        {s}有什么样的{label}？
        我想知道{s}的{label}。
    """),
    asides=ways("""
        据说{x}。
        其实，{x}。
        ~ {x}，这一点没有疑问。
        众所周知，{x}。
    """),
    relations=(
        Relation(
            "person",
            ways("""
                {s}的老师是{b}。
                {b}教过{s}。
                ~ {b}是{s}的老师。
                {s}是{b}的学生。
            """),
            ways("""
                {s}的老师
                教过{s}的老师
                教过{s}的那位
                ~ 当过{s}老师的人
            """),
        ),
        Relation(
            "company",
            ways("""
                ~ {s}在{b}上班。
                {b}雇用了{s}。
                {s}是{b}的员工。
                {s}为{b}工作。
            """),
            ways("""
                {s}上班的单位
                ~ 雇用{s}的单位
                {s}工作的单位
                {s}所在的公司
            """),
        ),
        Relation(
            "town",
            ways("""
                {s}在{b}长大。
                {s}的童年是在{b}度过的。
                ~ {s}小时候住在{b}。
                {b}是{s}长大的地方。
            """),
            ways("""
                ~ {s}长大的地方
                {s}度过童年的地方
                {s}小时候住的地方
                {s}童年所在的地方
            """),
        ),
    ),
    introductions=ways("""
        下面要讲的是{s}。
        ~ 这里的人都认识{s}。
        还有一位值得一提，就是{s}。
        接下来的几页都是关于{s}的。
    """),
    corrections=ways("""
        ~ 更正：{s}的{label}是{v}，不是{old}。
        前面写错了：{s}的{label}不是{old}，而是{v}。
        后来查明，{s}的{label}应为{v}，而非{old}。
        {s}的{label}曾误作{old}，实为{v}。
        请注意：{s}的{label}现在是{v}，不再是{old}。
    """),
    headings=ways("""
        ## {name}
        ~ 【{name}】
        《{name}》
        # {name}
    """),
    notes=ways("""
        {label}：{v}。
        - {label}：{v}
        {label}——{v}
        ~ {label}={v}
    """),
    narrative=ways("""
        那一年的冬天特别长。
        山路上很少有人走动。
        集市每逢初五开张。
        旧档案保存得并不完整。
        雨下了整整三天。
        ~ 这些笔记是后来才整理的。
    """),
    titles=ways("""
        第{n}页
        ~ 文件{n}
        [{n}]
        资料{n}
    """),
    questions=ways("""
        问题：{q}
        请回答：{q}
        ~ {q}
        请告诉我：{q}
    """),
    systems=ways("""
        ~ 请根据下面的段落回答问题。后面的更正以后面的为准。只写简短的答案；段落里没有就写“未知”。
        根据材料回答，只给出简短答案。
        只用下面的文字回答，越短越好。
        阅读段落并回答问题，只写答案。
    """),
)
